"""Summarizes the columns of a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from orbit_runner.data.tables.columns import CATEGORY, DATE, Column, TablePart, date_text
from orbit_runner.utils.metrics import summarize_array

_TOP = 10


@dataclasses.dataclass(frozen=True)
class ColumnSummary:
    """Statistics of a column.

    Attributes:
        name: Its name.
        role: Its role, such as `feature`.
        kind: `number`, `date` or `category`.
        missing: The number of missing values.
        distinct: The number of different values.
        low: The smallest finite number; None if there are none.
        high: The largest one.
        mean: Their mean.
        top: The most frequent categories, with the number of their rows; `infinite` for numbers.
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
class TableSummary:
    """A summary of the parts of a table.

    Attributes:
        rows: The number of rows of each part.
        columns: The columns of each part.
        left_out: What of the tables is not used, and columns that tell little, one line each.
    """

    rows: Mapping[str, int]
    columns: Mapping[str, Sequence[ColumnSummary]]
    left_out: Sequence[str] = ()


def summarize(parts: Mapping[str, TablePart], roles: Mapping[str, str]) -> TableSummary:
    """Returns a summary of parts; `roles` maps each column to summarize to its role."""
    return TableSummary(
        rows={name: part.size for name, part in parts.items()},
        columns={
            name: [summarize_column(part.column(column), role) for column, role in roles.items()]
            for name, part in parts.items()
        },
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
    low, high, mean, _, infinite = summarize_array(values)
    distinct = len(np.unique(values))
    top = [("infinite", infinite)] if infinite else []
    return ColumnSummary(column.name, role, column.kind, count, distinct, low, high, mean, top)
