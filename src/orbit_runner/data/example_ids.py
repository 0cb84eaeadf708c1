"""Names examples, and finds them by their names: an index, or a file and a number in it."""

from __future__ import annotations

import re
from collections.abc import Iterable

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


def locate(parts: Iterable[tuple[str, int]], row: int) -> tuple[str, int] | None:
    """Returns the name of the file or array with a row, and the number of the row in it, from 0.

    `parts` are the name and the number of rows of each file or array, in order. None if they do not
    have so many rows.
    """
    for name, count in parts:
        if row < count:
            return name, row
        row -= count
    return None


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
        text: `FILE:NUMBER`, or `FILE, row NUMBER`.
        parts: The name and the number of rows of each file or array, in order.
        rows: The row of each example, counted through all parts, ascending: int64 [n]; None if each
            row is an example.
        first: The number of the first row of a part.
        id_help: The forms of ids, for messages.

    Raises:
        UnknownExample: There is no such example.
    """
    place = place_of(text)
    before = 0
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
    """Returns whether a path is the requested path, which may lack the first directories."""
    return path == requested or path.endswith(f"/{requested.removeprefix('./')}")


def unknown_id_error(text: str, id_help: str, reason: str = "") -> UnknownExample:
    """Returns the error for an ID that no example has."""
    why = f", which {reason}" if reason else ""
    return UnknownExample(f"got {text!r}{why}\nallowed: {id_help}")
