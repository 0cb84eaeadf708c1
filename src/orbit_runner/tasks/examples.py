"""What tasks know about the examples of training without running a pipeline; no TensorFlow."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np

from orbit_runner.config.example_ids import read_ids
from orbit_runner.config.schema.data import DataConfig
from orbit_runner.data.order.epochs import NO_EXAMPLES, EpochOrder, Rows, exclude_examples
from orbit_runner.data.order.mixture import Mixture, MixtureOrder
from orbit_runner.data.order.steps import RowOrder, StepOrder
from orbit_runner.errors import DataError, RunnerError, nearest_name_hint

# `FILE:NUMBER`, or the place of an example as `runner batch` prints it: `a.csv, row 7`.
_FILE_AND_NUMBER = re.compile(r"(?P<file>.+?)(?::|, row |, index )(?P<number>\d+)")
FLAG = "--example"
# Comparing more names takes too long.
_MAX_COMPARED = 2000


class TrainingExamples(Protocol):
    """The examples of the training data.

    Attributes:
        source: The name of the data source.
        order: Which examples are in which step.
        excluded: Indices of the examples that `train_data.exclude` leaves out, int64 [k],
            ascending. They count in the indices, but are in no step.
        id_help: The forms of ids that `find` accepts, for messages.
    """

    source: str
    order: StepOrder
    excluded: np.ndarray
    id_help: str

    def describe(
        self, rows: Rows, chosen: np.ndarray, *, text: bool = False
    ) -> list[dict[str, Any]]:
        """Returns where each of some rows comes from, its label, and what was drawn for it.

        Args:
            rows: The rows of a global batch.
            chosen: The rows to describe, int64 [k].
            text: Whether to add the text of sentences.

        Returns:
            A dict per chosen row, which `json.dumps` accepts.
        """
        ...

    def find(self, text: str) -> int:
        """Returns the index of an example.

        Args:
            text: An index, or a place such as `FILE:LINE`.

        Raises:
            UnknownExample: If there is no such example.
        """
        ...


class UnknownExample(RunnerError):
    """An ID that no example has.

    Attributes:
        reason: The ID and what is allowed.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"{FLAG}: {reason}")
        self.reason = reason


def find_excluded(data: DataConfig, size: int, find: Callable[[str], int]) -> np.ndarray:
    """Returns the indices of the examples that `data.exclude` leaves out: int64 [k], ascending.

    Args:
        data: The section of the training data.
        size: The number of all examples.
        find: Returns the index of an ID; raises `UnknownExample` if there is none.

    Raises:
        DataError: An ID is unknown, or no example is left.
    """
    if not data.exclude:
        return NO_EXAMPLES
    ids, found, problems = read_ids(data.exclude), set[int](), []
    for text, place in ids.items():
        try:
            found.add(find(text))
        except UnknownExample as error:
            problems.append(f"{place}: {error.reason}" if place else error.reason)
    if problems:
        more = f"\nand {len(problems) - 1:,} more of {len(ids):,} IDs" if problems[1:] else ""
        raise DataError(problems[0] + more, field="exclude")
    if len(found) == size:
        raise DataError(f"leaves out all {size:,} examples, expected fewer", field="exclude")
    return np.array(sorted(found), np.int64)


def order_of(
    data: DataConfig, order: EpochOrder, excluded: np.ndarray, mixture: Mixture | None = None
) -> StepOrder:
    """Returns which examples are in the batch of each step.

    `order` is that of all examples, from which `excluded` are left out. A `mixture`, which does not
    contain them, replaces that order.
    """
    if mixture is not None:
        mixed = MixtureOrder(mixture, data.seed or 0, data.shuffle_buffer_size > 1)
        return RowOrder(mixed, data.global_batch_size)
    return RowOrder(exclude_examples(order, excluded), data.global_batch_size)


def index_of(text: str, size: int) -> int | None:
    """Returns the index that a text contains, or None if it is another kind of ID."""
    if not text.isdecimal():
        return None
    if int(text) >= size:
        raise UnknownExample(f"got {text}, allowed: 0 to {size - 1}, the indices of examples")
    return int(text)


def place_of(text: str) -> tuple[str, int] | None:
    """Returns the file and the number of `FILE:NUMBER` or of `FILE, row NUMBER`; else None."""
    match = _FILE_AND_NUMBER.fullmatch(text)
    return (match["file"], int(match["number"])) if match else None


def find_row(
    text: str,
    parts: Iterable[tuple[str, int]],
    rows: np.ndarray | None,
    *,
    first: int,
    id_help: str,
) -> int:
    """Returns the index of the example in a row of a file or array.

    Args:
        text: An index, `FILE:NUMBER`, or `FILE, row NUMBER`.
        parts: The name and the number of rows of each file or array, in order.
        rows: The row of each example, counted through all parts, ascending: int64 [n]; None if each
            row is an example.
        first: The number of the first row of a part.
        id_help: The forms of ids, for messages.

    Raises:
        UnknownExample: There is no such example.
    """
    parts = [*parts]
    total = sum(count for _, count in parts)
    index = index_of(text, total if rows is None else len(rows))
    if index is not None:
        return index
    place, before = place_of(text), 0
    for name, count in parts if place else ():
        if place and is_same_file(name, place[0]) and first <= place[1] < first + count:
            break
        before += count
    else:
        raise unknown_id_error(text, id_help)
    row = before + place[1] - first
    if rows is None:
        return row
    example = int(np.searchsorted(rows, row))
    if example == len(rows) or rows[example] != row:
        raise unknown_id_error(text, id_help, "is in another part of the data")
    return example


def is_same_file(path: str, requested: str) -> bool:
    """Returns whether a path is the requested one, which may lack the first directories."""
    return path == requested or path.endswith(f"/{requested.removeprefix('./')}")


def unknown_id_error(
    text: str, id_help: str, reason: str = "", known: Iterable[str] = ()
) -> UnknownExample:
    """Returns the error for an ID that no example has.

    `known` are names of which the nearest is suggested, if they are not too many to compare.
    """
    why = f", which {reason}" if reason else ""
    names = [*itertools.islice(known, _MAX_COMPARED + 1)]
    hint = nearest_name_hint(text, names) if len(names) <= _MAX_COMPARED else ""
    return UnknownExample(f"got {text!r}{why}{hint}\nallowed: {id_help}")
