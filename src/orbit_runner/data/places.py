"""Where examples are stored, and which example an ID names: an index, or a file and a number in it.

Does not import TensorFlow, to report errors early.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Sequence

import numpy as np

from orbit_runner.errors import RunnerError

# `FILE:NUMBER`, or the place of an example as `runner batch` prints it: `a.csv, row 7`.
_FILE_AND_NUMBER = re.compile(r"(?P<file>.+?)(?::|, row |, index )(?P<number>\d+)")
FLAG = "--example"


class UnknownExample(RunnerError):
    """An ID that no example has.

    Attributes:
        reason: The ID and what is allowed.
    """

    code = "unknown-example"

    def __init__(self, reason: str) -> None:
        super().__init__(reason, path=FLAG)


@dataclasses.dataclass(frozen=True, eq=False)
class Places:
    """Which rows of which files or arrays the examples of a dataset are.

    Attributes:
        parts: The name and the number of rows of each file or array, in order.
        rows: The row of each example, counted through all parts, ascending: int64 [n]. None if each
            row is an example.
        kind: What the user calls a part, for messages.
        unit: What the user calls a row of a part.
        first: The number of the first row of a part.
    """

    parts: tuple[tuple[str, int], ...]
    rows: np.ndarray | None = None
    kind: str = "FILE"
    unit: str = "row"
    first: int = 1

    @property
    def size(self) -> int:
        """The number of examples."""
        return int(self.starts[-1]) if self.rows is None else len(self.rows)

    @functools.cached_property
    def starts(self) -> np.ndarray:
        """The row at which each part starts, and the number of all rows: int64 [parts + 1]."""
        return np.cumsum([0, *(count for _, count in self.parts)], dtype=np.int64)

    @property
    def id_form(self) -> str:
        """The form of the ID of an example, for messages."""
        return f"{self.kind}:{self.unit.upper()}"

    def all_rows(self) -> np.ndarray:
        """Returns the row of each example, counted through all parts, int64 [n]."""
        return np.arange(self.size) if self.rows is None else self.rows

    def locate(self, examples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the index of the part of examples, and their rows in it from 0, int64 [k]."""
        rows = examples if self.rows is None else self.rows[examples]
        part = np.searchsorted(self.starts, rows, side="right") - 1
        return part, rows - self.starts[part]

    def part_and_number(self, example: int) -> tuple[str, int]:
        """Returns the name of the part of an example, and its number there."""
        part, row = self.locate(np.array([example]))
        return self.parts[int(part[0])][0], int(row[0]) + self.first

    def text(self, example: int) -> str:
        """Returns the part and the number of an example, such as `a.csv, row 7`."""
        name, number = self.part_and_number(example)
        return f"{name}, {self.unit} {number}"

    def find(self, text: str, id_help: str = "") -> int:
        """Returns the index of the example that `FILE:NUMBER` or `FILE, row NUMBER` names.

        Raises `UnknownExample` if there is none, or if several files end with that name. `id_help`
        are the forms of IDs, for messages.
        """
        place = place_of(text)
        if place is None:
            raise unknown_id_error(text, id_help)
        file, number = place[0], place[1] - self.first
        rows = [
            (name, start + number)
            for start, (name, count) in zip(self.starts.tolist(), self.parts, strict=False)
            if 0 <= number < count and is_same_file(name, file)
        ]
        examples: dict[str, int] = {}
        for name, row in rows:
            example = self.example_of(row)
            if example is not None:
                examples.setdefault(name, example)
        if file in examples:
            return examples[file]
        if len(examples) != 1:
            reason = "is in another part of the data" if rows else ""
            if examples:
                reason = f"is the end of {len(examples)} paths; add directories"
            raise unknown_id_error(text, id_help, reason)
        return next(iter(examples.values()))

    def example_of(self, row: int) -> int | None:
        """Returns the index of the example in a row, None if it is not used."""
        if self.rows is None:
            return row
        example = int(np.searchsorted(self.rows, row))
        is_used = example < len(self.rows) and self.rows[example] == row
        return example if is_used else None

    def select(self, examples: np.ndarray) -> Places:
        """Returns the places of some examples, ascending, int64 [k]."""
        rows = examples if self.rows is None else self.rows[examples]
        return dataclasses.replace(self, rows=rows)

    def join(self, others: Sequence[Places]) -> Places:
        """Returns the places of the examples of several datasets, of which this is the first."""
        parts = tuple(part for places in others for part in places.parts)
        rows = None
        if any(places.rows is not None for places in others):
            starts = np.cumsum([0, *(places.starts[-1] for places in others)])
            rows = np.concatenate(
                [p.all_rows() + start for p, start in zip(others, starts, strict=False)]
            )
        return dataclasses.replace(self, parts=parts, rows=rows)


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


def is_same_file(path: str, requested: str) -> bool:
    """Returns whether a path is the requested path, which may lack the first directories."""
    return path == requested or path.endswith(f"/{requested.removeprefix('./')}")


def unknown_id_error(text: str, id_help: str, reason: str = "") -> UnknownExample:
    """Returns the error for an ID that no example has."""
    why = f", which {reason}" if reason else ""
    return UnknownExample(f"got {text!r}{why}\nallowed: {id_help}")
