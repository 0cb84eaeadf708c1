"""Summarizes a table: its columns, and rows that are equal within or between its parts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from orbit_runner.data.tables.columns import CATEGORY, DATE, Column, TablePart, date_text
from orbit_runner.data.tables.hashing import hash_rows

_TOP = 10
_EXAMPLES = 3


@dataclasses.dataclass(frozen=True)
class ColumnSummary:
    """Statistics of a column.

    Attributes:
        name: Its name.
        role: Its role, such as `feature`.
        kind: `number`, `date` or `category`.
        missing: The number of missing values.
        distinct: The number of different values.
        low: The smallest number; None if there are none.
        high: The largest number.
        mean: The mean of the numbers.
        top: The most frequent categories, with the number of their rows.
        range: The first and the last date; "" for other kinds.
    """

    name: str
    role: str
    kind: str
    missing: int
    distinct: int
    low: float | None = None
    high: float | None = None
    mean: float | None = None
    top: Sequence[tuple[str, int]] = ()
    range: str = ""


@dataclasses.dataclass(frozen=True)
class EqualRows:
    """Rows whose features are equal.

    Attributes:
        rows: The number of rows with the same features as an earlier row.
        examples: Pairs of equal rows, each with its file and number.
    """

    rows: int
    examples: Sequence[tuple[str, str]] = ()


@dataclasses.dataclass(frozen=True)
class TableSummary:
    """A summary of the parts of a table.

    Attributes:
        rows: The number of rows of each part.
        columns: The columns of each part.
        repeated: Equal rows within each part.
        leaked: Rows of the second part that are equal to a row of the first.
        left_out: What of the tables is not used, and columns that tell little, one line each.
    """

    rows: Mapping[str, int]
    columns: Mapping[str, Sequence[ColumnSummary]]
    repeated: Mapping[str, EqualRows]
    leaked: EqualRows
    left_out: Sequence[str] = ()


def summarize(
    parts: Mapping[str, TablePart], roles: Mapping[str, str], features: Sequence[str]
) -> TableSummary:
    """Returns a summary of two parts.

    `roles` maps each column to summarize to its role. Rows with the same `features` are equal.
    """
    hashes = {name: row_hashes(part, features) for name, part in parts.items()}
    (first, left), (second, right) = parts.items()
    return TableSummary(
        rows={name: part.size for name, part in parts.items()},
        columns={
            name: [summarize_column(part.column(column), role) for column, role in roles.items()]
            for name, part in parts.items()
        },
        repeated={name: _repeated_rows(part, hashes[name]) for name, part in parts.items()},
        leaked=leaked_rows(left, right, hashes[first], hashes[second]),
    )


def summarize_column(column: Column, role: str) -> ColumnSummary:
    """Returns statistics of a column."""
    missing = column.is_missing()
    values = column.values[~missing]
    count = int(missing.sum())
    if column.kind == CATEGORY:
        counts = {text: rows for text, rows in column.text_counts().items() if text}
        top = sorted(counts.items(), key=lambda entry: -entry[1])[:_TOP]
        return ColumnSummary(column.name, role, column.kind, count, len(counts), top=top)
    if not len(values):
        return ColumnSummary(column.name, role, column.kind, count, 0)
    if column.kind == DATE:
        ends = " to ".join(date_text(int(value)) for value in (values.min(), values.max()))
        distinct = len(np.unique(values))
        return ColumnSummary(column.name, role, column.kind, count, distinct, range=ends)
    return ColumnSummary(
        column.name,
        role,
        column.kind,
        count,
        len(np.unique(values)),
        float(values.min()),
        float(values.max()),
        float(values.mean(dtype=np.float64)),
    )


def row_hashes(part: TablePart, features: Sequence[str]) -> np.ndarray:
    """Returns a hash of the features of each row of a part, uint64 [n]."""
    return hash_rows(part.column(name) for name in features)


def leaked_rows(
    train: TablePart, validation: TablePart, left: np.ndarray, right: np.ndarray
) -> EqualRows:
    """Returns the rows of `validation` whose features are those of a row of `train`.

    `left` and `right` are their hashes from `row_hashes`.
    """
    leaked = np.flatnonzero(np.isin(right, left))
    examples = [
        (train.row_location(int((left == right[row]).argmax())), validation.row_location(int(row)))
        for row in leaked[:_EXAMPLES]
    ]
    return EqualRows(len(leaked), examples)


def _repeated_rows(part: TablePart, hashes: np.ndarray) -> EqualRows:
    _, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    again = np.flatnonzero(first[inverse] != np.arange(len(hashes)))
    examples = [
        (part.row_location(int(first[inverse[row]])), part.row_location(int(row)))
        for row in again[:_EXAMPLES]
    ]
    return EqualRows(len(again), examples)
