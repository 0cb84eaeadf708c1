"""Columns of dates: how they are read, inferred and encoded, in training and prediction."""

import datetime
import math

import numpy as np
import pyarrow
import pytest
import tensorflow as tf
from pyarrow import parquet

from orbit_runner.data.tables.build import build_columns
from orbit_runner.data.tables.cell_texts import parse_date
from orbit_runner.data.tables.columns import DATE, MISSING_DATE, Column, date_text
from orbit_runner.data.tables.csv_file import CSV
from orbit_runner.data.tables.dataset import TableOptions, TableUse
from orbit_runner.tasks.tabular.data_config import TableDataConfig
from orbit_runner.tasks.tabular.layers import EncodeDates, days_and_seconds
from orbit_runner.tasks.tabular.preprocessing import DateFit
from tests.support.problems import raises

HOUR = 3600
DAY = 24 * HOUR


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01", 0),
        ("1970-01-02T00:00", DAY),
        ("1969-12-31 23:59:59.9", -1),
        ("2024-02-29T10:30", 1_709_202_600),
        ("2024-02-29 10:30:05Z", 1_709_202_605),
        ("2024-02-29T10:30:05 +01:30", 1_709_202_605 - HOUR - HOUR // 2),
        ("2024-02-29T10:30-0200", 1_709_202_600 + 2 * HOUR),
        ("2024-02-29T10", 1_709_200_800),
        ("0001-01-01", -62_135_596_800),
    ],
)
def test_dates_are_read(text, seconds):
    assert parse_date(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "2024", "2024-02", "2023-02-29", "2024-1-1", "31.1.2024", "2024-01-01T24:00", "10:30",
     "2024-01-01T10:30 in the morning", "20240101", "2024-13-01", "0000-01-01"],
)  # fmt: skip
def test_text_that_is_not_a_date_is_refused(text):
    with pytest.raises(ValueError, match=r".*"):
        parse_date(text)


@pytest.mark.parametrize("seconds", [0, -1, DAY, 1_709_202_600, -62_135_596_800])
def test_the_text_of_a_date_is_read_as_the_same_date(seconds):
    assert parse_date(date_text(seconds)) == seconds


def test_training_and_prediction_read_texts_alike(tmp_path):
    random = np.random.default_rng(5)
    forms = ("%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H")
    start = datetime.datetime(1800, 1, 1)
    moments = [start + datetime.timedelta(seconds=int(n)) for n in random.integers(0, 2**34, 400)]
    texts = [moment.strftime(forms[n % 4]) for n, moment in enumerate(moments)]
    for number, more in enumerate(([], ["2024-02-29T10:30+01:00"], ["2024-01-01 1:1"])):
        file = tmp_path / f"{number}.csv"
        file.write_text("\n".join(["when", *texts, *more]) + "\n")
        table = CSV.load(data_dir="", input_path=(str(file),), options=TableOptions())
        if number == 2:
            with raises("bad-record"):
                build_columns(table, {"when": DATE})
        else:
            values = build_columns(table, {"when": DATE})[0]["when"].values.tolist()
            assert values == [parse_date(text) for text in [*texts, *more]]


@pytest.mark.parametrize("form", ["text", "date32[day]", "timestamp[s]"])
def test_date_that_means_a_missing_value_is_one_in_each_form(form, tmp_path):
    texts = pyarrow.array(["1900-01-01", "2024-02-29"])
    column = texts if form == "text" else texts.cast(form)
    parquet.write_table(pyarrow.table({"when": column}), tmp_path / "a.parquet")
    data = TableDataConfig(
        source="parquet", input_path=[f"{tmp_path}/a.parquet"], missing_values=["1900-01-01T00:00"]
    )
    table = data.reader.open(data, data.options, TableUse())
    values = build_columns(table, {"when": DATE})[0]["when"].values.tolist()
    assert values == [MISSING_DATE, parse_date("2024-02-29")]


def _encode(fit, *moments):
    seconds = [
        math.nan if moment is None else (moment - datetime.datetime(1970, 1, 1)).total_seconds()
        for moment in moments
    ]
    inputs = days_and_seconds(tf.constant(seconds, tf.float64))
    return EncodeDates([fit])(inputs).numpy()


def _angle_of_year(moment):
    year = moment.year if moment.month >= 3 else moment.year - 1
    return 2 * math.pi * (moment - datetime.datetime(year, 3, 1)).days / 366


def test_the_encoding_is_that_of_the_calendar():
    random = np.random.default_rng(1)
    start = datetime.datetime(1600, 1, 1)
    moments = [
        *(start + datetime.timedelta(minutes=int(n)) for n in random.integers(0, 2**28, 300)),
        *(datetime.datetime(year, 2, 28) + datetime.timedelta(days=days)
          for year in (1900, 1968, 1970, 2000, 2023, 2024, 2100) for days in range(3)),
    ]  # fmt: skip

    encoded = _encode(DateFit(100.5, 2.0, has_time=True), *moments)

    for moment, row in zip(moments, encoded, strict=True):
        since = (moment - datetime.datetime(1970, 1, 1)) / datetime.timedelta(days=1)
        time = moment.hour * 60 + moment.minute
        angles = (
            _angle_of_year(moment),
            2 * math.pi * moment.weekday() / 7,
            2 * math.pi * time / 1440,
        )
        expected = [function(angle) for angle in angles for function in (math.sin, math.cos)]
        np.testing.assert_allclose(row, [(since - 100.5) / 2, *expected], rtol=1e-6, atol=2e-6)


def test_missing_dates_are_zeros_and_set_a_flag():
    moment = datetime.datetime(2024, 1, 1)

    encoded = _encode(DateFit(0.0, 1.0, has_missing=True), moment, None)

    assert encoded.shape == (2, 6)
    assert encoded[0, -1] == 0
    assert encoded[1].tolist() == [0, 0, 0, 0, 0, 1]


def test_a_column_without_time_has_days_and_seconds():
    column = Column("day", DATE, np.array([0, DAY - 1, -1, MISSING_DATE]))
    assert [column.text(row) for row in range(4)] == [
        "1970-01-01", "1970-01-01T23:59:59", "1969-12-31T23:59:59", "",
    ]  # fmt: skip
    assert column.is_missing().tolist() == [False, False, False, True]
