"""The first look: columns in numbers."""

from __future__ import annotations

import numpy as np

from orbit_runner.data.tables.columns import Column, TableSource
from orbit_runner.data.tables.summary import summarize_column


def _source() -> TableSource:
    number = np.array([1, 2, 1, np.nan, 5, 1, np.nan], np.float32)
    codes = np.array([0, 1, 0, -1, 0, 0, -1], np.int32)
    columns = {
        "n": Column("n", "number", number),
        "c": Column("c", "category", codes, ("x", "y")),
    }
    return TableSource("csv", columns, [("a.csv", 4), ("b.csv", 3)])


def test_columns_are_summarized() -> None:
    columns = _source().columns
    number = summarize_column(columns["n"], "feature")
    assert (number.missing, number.distinct, number.low, number.high) == (2, 3, 1.0, 5.0)
    assert number.mean == 2.0
    category = summarize_column(columns["c"], "target")
    assert (category.role, category.missing, category.distinct) == ("target", 2, 2)
    assert category.top == [("x", 4), ("y", 1)]
    empty = summarize_column(Column("e", "number", np.full(2, np.nan, np.float32)), "feature")
    assert (empty.missing, empty.distinct, empty.low) == (2, 0, None)
