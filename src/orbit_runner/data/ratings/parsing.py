"""Parses lines of numbers, many at once, because MovieLens 20M has 20 million of them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from orbit_runner.errors import DataError

_CHUNK_BYTES = 2**24
# A file without line ends, such as one of zeros, must not be read into memory as a whole.
_MAX_LINE_BYTES = 1 << 20
_MOST_DIGITS = 18
_FIELDS = ("user", "item", "rating", "time")


@dataclasses.dataclass(frozen=True)
class Layout:
    """The format of a line: user, item, rating, time."""

    separator: bytes  # If there are several bytes, all must be equal.
    header: bytes = b""  # The first line of the file; empty if it has no header.

    @property
    def pattern(self) -> re.Pattern[bytes]:
        """The pattern of a valid line; it must accept the same lines as `_parse_fields`."""
        number = rb"\d{1,%d}" % _MOST_DIGITS
        fields = (number, number, rb"\d(?:[\d.]*\d)?", number)
        return re.compile(re.escape(self.separator).join(fields))


def parse_ratings(
    path: Path, layout: Layout, *, field: str, bad: dict[int, str] | None = None
) -> np.ndarray:
    """Returns the users, items and times of a file, in its order: int64 [3, n].

    Raises DataError for the setting `field` if the file cannot be read or is empty, or if a line is
    not valid. If `bad` is given, lines that are not valid are left out, and added to it by their
    numbers, from 1, with their problems.
    """
    parts = [np.zeros((3, 0), np.int64)]
    line = 1
    try:
        for chunk in _read_chunks(path):
            if line == 1 and layout.header:
                chunk = _strip_header(path, chunk, layout, field)
                line += 1
            if chunk:
                parts.append(_parse(path, chunk, layout, line, field, bad))
                line += chunk.count(b"\n")
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read: {error.strerror}", field=field, code="unreadable-file"
        ) from None
    if not parts[1:]:
        raise DataError(
            f"{path}: contains no ratings, expected one per line", field=field, code="empty-data"
        )
    return np.concatenate(parts, axis=1)


def _read_chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            chunk += file.readline(_MAX_LINE_BYTES)
            chunk = chunk.replace(b"\r\n", b"\n")
            yield chunk if chunk.endswith(b"\n") else chunk + b"\n"


def _strip_header(path: Path, chunk: bytes, layout: Layout, field: str) -> bytes:
    first, _, rest = chunk.partition(b"\n")
    if first != layout.header:
        raise DataError(
            f"{path}:1: got {_format_line(first)}, expected the header "
            f"{_format_line(layout.header)}",
            field=field,
            code="bad-record",
        )
    return rest


def _parse(
    path: Path, chunk: bytes, layout: Layout, line: int, field: str, bad: dict[int, str] | None
) -> np.ndarray:
    ratings = _parse_fields(np.frombuffer(chunk, np.uint8), layout)
    if ratings is not None:
        return ratings
    # A line is not valid. Match each line, which is slow, to report which one.
    pattern = layout.pattern
    good = []
    for number, text in enumerate(chunk.split(b"\n")[:-1], start=line):
        if pattern.fullmatch(text):
            good.append(text)
            continue
        separator = repr(layout.separator.decode())
        problem = (
            f"{path}:{number}: got {_format_line(text)}, expected four numbers separated by "
            f"{separator}: {', '.join(_FIELDS)}"
        )
        if bad is None:
            raise DataError(problem, field=field, code="bad-record")
        bad[number] = problem
    rest = b"".join(text + b"\n" for text in good)
    ratings = (
        _parse_fields(np.frombuffer(rest, np.uint8), layout) if rest else np.zeros((3, 0), np.int64)
    )
    if ratings is None or len(rest) == len(chunk):
        raise AssertionError(f"{path}: lines that match were not parsed")
    return ratings


def _parse_fields(text: np.ndarray, layout: Layout) -> np.ndarray | None:
    width = len(layout.separator)
    ends = np.flatnonzero((text == layout.separator[0]) | (text == 10))
    marks = 3 * width + 1
    if len(ends) % marks:
        return None
    places = ends.reshape(-1, marks)
    row = np.frombuffer(layout.separator * 3 + b"\n", np.uint8)
    if not (text[places] == row).all():
        return None
    firsts, lasts = places[:, 0:-1:width], places[:, width - 1 : -1 : width]
    if not (lasts - firsts == width - 1).all():
        return None
    begins = np.concatenate([np.append(0, places[:-1, -1] + 1)[:, np.newaxis], lasts + 1], axis=1)
    stops = np.concatenate([firsts, places[:, -1:]], axis=1)
    if not _are_ratings(text, begins[:, 2], stops[:, 2]):
        return None
    columns = (_parse_integers(text, begins[:, column], stops[:, column]) for column in (0, 1, 3))
    numbers = [column for column in columns if column is not None]
    return np.stack(numbers) if len(numbers) == 3 else None


def _parse_integers(text: np.ndarray, begins: np.ndarray, stops: np.ndarray) -> np.ndarray | None:
    lengths = stops - begins
    if lengths.min() < 1 or lengths.max() > _MOST_DIGITS:
        return None
    values = np.zeros(len(begins), np.int64)
    power = 1
    for place in range(lengths.max()):
        inside = place < lengths
        digits = text[np.maximum(stops - 1 - place, 0)] - np.uint8(48)
        digits[~inside] = 0
        if digits.max() > 9:
            return None
        values += digits * np.int64(power)
        power *= 10
    return values


def _are_ratings(text: np.ndarray, begins: np.ndarray, stops: np.ndarray) -> bool:
    lengths = stops - begins
    if lengths.min() < 1:
        return False
    digit = (text >= 48) & (text <= 57)
    if not (digit[begins].all() and digit[stops - 1].all()):
        return False
    if lengths.max() <= 2:
        return True
    fine = np.concatenate([[0], np.cumsum(digit | (text == 46))])
    return bool((fine[stops] - fine[begins] == lengths).all())


def _format_line(text: bytes) -> str:
    shown = repr(text.decode("utf-8", "replace"))
    return shown if len(shown) <= 80 else f"{shown[:77]}…'"
