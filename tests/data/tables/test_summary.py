"""The first look: columns in numbers."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.data.places import Places
from orbit_runner.data.tables.columns import Column, TablePart
from orbit_runner.data.tables.summary import summarize_column
from orbit_runner.inspection.picture_sheet import to_rgb
from orbit_runner.reporting.inspection import tensor_table
from orbit_runner.step.batches import batch_summary
from orbit_runner.tasks.keras.examples import labels_of


def _source():
    number = np.array([1, 2, 1, np.nan, 5, 1, np.nan], np.float32)
    codes = np.array([0, 1, 0, -1, 0, 0, -1], np.int32)
    columns = {
        "n": Column("n", "number", number),
        "c": Column("c", "category", codes, ("x", "y")),
    }
    return TablePart("csv", columns, Places((("a.csv", 4), ("b.csv", 3))))


def test_columns_are_summarized():
    columns = _source().columns
    number = summarize_column(columns["n"], "feature")
    assert (number.missing, number.distinct, number.low, number.high) == (2, 3, 1.0, 5.0)
    assert number.mean == 2.0
    number = summarize_column(Column("i", "number", np.array([np.inf, 3, np.nan])), "feature")
    assert (number.low, number.high, number.mean, number.top) == (3.0, 3.0, 3.0, [("infinite", 1)])
    category = summarize_column(columns["c"], "target")
    assert (category.role, category.missing, category.distinct) == ("target", 2, 2)
    assert category.top == [("x", 4), ("y", 1)]
    empty = summarize_column(Column("e", "number", np.full(2, np.nan, np.float32)), "feature")
    assert (empty.missing, empty.distinct, empty.low) == (2, 0, None)


@pytest.mark.parametrize(
    ("values", "low", "high", "mean", "nan", "infinite"),
    [
        ([1.0, np.nan, 3.0, np.inf, -np.inf], 1.0, 3.0, 2.0, 1, 2),
        ([np.nan, np.nan], None, None, None, 2, 0),
        ([4.0, 6.0], 4.0, 6.0, 5.0, 0, 0),
    ],
)
def test_one_value_that_is_not_finite_does_not_hide_the_others(
    values, low, high, mean, nan, infinite
):
    array = np.array(values, np.float32)
    (summary,) = batch_summary({"x": tf.constant(array)})
    assert (summary.low, summary.high, summary.mean) == (low, high, mean)
    assert (summary.nan, summary.infinite) == (nan, infinite)
    table = tensor_table([summary])
    assert ("NaN" in table.head, "infinite" in table.head) == (bool(nan), bool(infinite))
    assert json.loads(json.dumps(dataclasses.asdict(summary), allow_nan=False))["low"] == low
    labels = labels_of([array])
    assert (labels.low, labels.high) == (low, high)
    picture = to_rgb(np.tile(array, (1, 2, 1))[..., None])
    assert len({*picture.ravel()}) == len({low, high})
