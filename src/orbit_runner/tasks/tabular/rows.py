"""Reads the rows to predict for: CSV files with a header, and JSON lines."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from orbit_runner.data.tables.jsonl import parse_object
from orbit_runner.errors import DataError, RunnerError
from orbit_runner.tasks.serving import Prediction


@dataclasses.dataclass(frozen=True)
class Row:
    """A row to predict for: its place, and its values by column; or what is wrong with it."""

    where: str
    values: Mapping[str, Any]
    problem: str = ""

    def error_prediction(self, reason: str) -> Prediction:
        """Returns a prediction that reports an error for the row."""
        return Prediction(f"{self.where}: error: {reason}", {"row": self.where, "error": reason})


def csv_rows(
    where: str, lines: Iterable[str], delimiter: str, missing: Sequence[str]
) -> Iterator[Row]:
    """Yields the rows of a CSV file, whose first line names the columns.

    `missing` are the texts that mean that a value is missing, which becomes None.
    """
    header: list[str] = []
    for number, cells in enumerate(_cells(where, lines, delimiter)):
        if not number:
            header = cells
            continue
        problem = ""
        if len(cells) != len(header):
            problem = f"has {len(cells)} columns, expected {len(header)}"
        values = {
            name: None if cell in missing else cell
            for name, cell in zip(header, cells, strict=False)
        }
        yield Row(f"{where}, row {number}", values, problem)


def _cells(where: str, lines: Iterable[str], delimiter: str) -> Iterator[list[str]]:
    try:
        # Blank lines are no rows, as in the files for training.
        yield from filter(None, csv.reader(lines, delimiter=delimiter))
    except csv.Error as error:
        raise RunnerError(f"{where}: cannot be read as CSV: {error}") from None


def json_rows(where: str, lines: Iterable[str]) -> Iterator[Row]:
    """Yields the rows of JSON lines."""
    for number, line in enumerate(lines, 1):
        place = f"{where}, row {number}"
        try:
            yield Row(place, parse_object(line, place))
        except DataError as error:
            yield Row(place, {}, str(error).removeprefix(f"{place}: "))


def peek_line(lines: Iterable[str]) -> tuple[str, Iterator[str]]:
    """Returns the first line, "" if there is none, and all lines."""
    rest = iter(lines)
    first = next(rest, "")
    return first, _chain(first, rest)


def _chain(first: str, rest: Iterable[str]) -> Iterator[str]:
    if first:
        yield first
    yield from rest
