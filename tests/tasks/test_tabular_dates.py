"""Columns of dates: how they are read, inferred and encoded, in training and prediction."""

from __future__ import annotations

import datetime
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
import tensorflow as tf
from pyarrow import parquet

from orbit_runner.config.schema.task_data import task_data
from orbit_runner.data.tables.build import build_columns
from orbit_runner.data.tables.cell_texts import parse_date
from orbit_runner.data.tables.columns import DATE, MISSING_DATE, Column, date_text
from orbit_runner.data.tables.csv_file import CsvTable
from orbit_runner.data.tables.dataset import TableOptions
from orbit_runner.tasks.tabular.layers import EncodeDates, days_and_seconds
from orbit_runner.tasks.tabular.preprocessing import PREPROCESSING_FILE, DateFit
from orbit_runner.tasks.tabular.sources import feature_kinds, load_part
from orbit_runner.tasks.tabular.task import TabularTask, make_arrays
from tests.support.problems import pairs
from tests.support.tables import make_rows, table_config, write_csv
from tests.support.toy import run_and_resume

FEATURES: dict[str, Any] = {"numeric": ["size"], "date": ["when", "day"]}
HOUR = 3600
DAY = 24 * HOUR


def _rows() -> list[dict[str, Any]]:
    start = datetime.datetime(2019, 12, 30, 22, 15)
    rows = []
    for number, row in enumerate(make_rows()):
        when = start + datetime.timedelta(hours=31 * number)
        day = None if number % 10 == 3 else when.date().isoformat()
        rows.append({**row, "when": when.isoformat(), "day": day})
    return rows


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_csv(tmp_path_factory.mktemp("table") / "a.csv", _rows())


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
def test_dates_are_read(text: str, seconds: int) -> None:
    assert parse_date(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "2024", "2024-02", "2023-02-29", "2024-1-1", "31.1.2024", "2024-01-01T24:00", "10:30",
     "2024-01-01T10:30 in the morning", "20240101", "2024-13-01", "0000-01-01"],
)  # fmt: skip
def test_what_is_no_date_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse_date(text)


@pytest.mark.parametrize("seconds", [0, -1, DAY, 1_709_202_600, -62_135_596_800])
def test_the_text_of_a_date_is_read_as_the_same_date(seconds: int) -> None:
    assert parse_date(date_text(seconds)) == seconds


def test_training_and_prediction_read_texts_alike(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    forms = ("%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H")
    start = datetime.datetime(1800, 1, 1)
    moments = [start + datetime.timedelta(seconds=int(n)) for n in random.integers(0, 2**34, 400)]
    texts = [moment.strftime(forms[n % 4]) for n, moment in enumerate(moments)]
    for number, rows in enumerate((texts, [*texts, "2024-02-29T10:30+01:00", "2024-01-01 1:1"])):
        file = tmp_path / f"{number}.csv"
        file.write_text("when\n" + "\n".join(rows) + "\n")
        options = TableOptions(max_bad_records=5)
        table = CsvTable(data_dir="", input_path=(str(file),), options=options)

        columns, _, bad = build_columns(table, {"when": DATE})

        values = columns["when"].values.tolist()
        assert values[: len(texts)] == [parse_date(text) for text in texts]
        assert values[len(texts) :] == ([] if not number else [1_709_199_000, MISSING_DATE])
        assert [*bad] == [len(texts) + 1] * number


def _write_formats(directory: Path) -> list[Path]:
    rows = _rows()
    for row in rows:
        row["when"] = datetime.datetime.fromisoformat(row["when"])
        row["day"] = row["day"] and datetime.date.fromisoformat(row["day"])
    parquet.write_table(pyarrow.Table.from_pylist(rows), directory / "a.parquet")
    arrays = {
        name: np.array([row[name] for row in rows], dtype)
        for name, dtype in (("when", "M8[us]"), ("day", "M8[D]"), ("size", float), ("y", str))
    }
    np.savez(directory / "a.npz", **arrays)
    texts = [
        {name: value.isoformat() if name in ("when", "day") and value else value
         for name, value in row.items()}
        for row in rows
    ]  # fmt: skip
    (directory / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in texts))
    return [directory / f"a.{suffix}" for suffix in ("parquet", "npz", "jsonl")]


def test_dates_are_inferred_and_equal_in_each_format(path: Path, tmp_path: Path) -> None:
    columns = []
    for file in (path, *_write_formats(tmp_path)):
        source = file.suffix[1:]
        sections = {f"task__{s}__source": source for s in ("train_data", "validation_data")}
        features = {"exclude": ["id", "age", "color", "price", "w"] if source != "npz" else []}
        config = table_config(file, task__features=features, **sections).task
        assert feature_kinds(config) == {"size": "number", "when": "date", "day": "date"}, source
        assert [*task_data(config).problems()] == []
        part = load_part(config, "train_data")
        columns.append({name: part.column(name).values for name in ("when", "day")})
    for other in columns[1:]:
        np.testing.assert_array_equal(other["when"], columns[0]["when"])
        np.testing.assert_array_equal(other["day"], columns[0]["day"])


def test_listed_columns_keep_their_kind(path: Path) -> None:
    features = {"numeric": ["size"], "categorical": ["when"]}
    config = table_config(path, task__features=features).task

    assert feature_kinds(config) == {"size": "number", "when": "category"}
    assert load_part(config, "train_data").column("when").text(0).startswith("20")


def test_dates_in_texts_of_parquet_need_a_setting(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.Table.from_pylist([dict(row) for row in _rows()]), file)
    sections = {f"task__{s}__source": "parquet" for s in ("train_data", "validation_data")}
    exclude = {"exclude": ["id", "age", "color", "price", "w", "day"]}
    config = table_config(file, task__features=exclude, **sections).task

    (problem,) = pairs(task_data(config).problems())

    assert problem[0] == "features"
    assert "in a column of texts, most of which are dates" in problem[1]
    listed = table_config(file, task__features=FEATURES, **sections).task
    assert [*task_data(listed).problems()] == []


def _with_bad_date(directory: Path) -> Path:
    rows = _rows()
    rows[41]["when"] = "31.1.2024"
    return write_csv(directory / "bad.csv", rows)


def test_a_text_that_is_no_date_is_named(tmp_path: Path) -> None:
    file = _with_bad_date(tmp_path)

    problems = dict(pairs(task_data(table_config(file, task__features=FEATURES).task).problems()))

    message = problems["features"]
    assert f"{file}, row 42: column 'when': got '31.1.2024', expected a date such as" in message
    assert "if it is a missing value, list it in missing_values" in message


def test_a_row_that_is_no_date_may_be_left_out(tmp_path: Path) -> None:
    limits = {f"task__{s}__max_bad_records": 1 for s in ("train_data", "validation_data")}
    config = table_config(_with_bad_date(tmp_path), task__features=FEATURES, **limits).task

    assert [*task_data(config).problems()] == []
    sizes = [load_part(config, section).size for section in ("train_data", "validation_data")]
    assert sum(sizes) == 99


@pytest.mark.parametrize(
    ("features", "field", "message"),
    [
        ({"date": ["whn"]}, "features.date", "unknown column 'whn'; did you mean 'when'?"),
        ({"date": ["size"]}, "features.date", "column 'size' has type number, expected dates"),
        ({"numeric": ["when"]}, "features.numeric", "column 'when' has type date, expected num"),
    ],
)
def test_columns_that_are_no_dates_are_an_error(
    path: Path, features: dict[str, Any], field: str, message: str
) -> None:
    problems = dict(pairs(table_config(path, task__features=features).data.problems()))

    assert message in problems[field]


def test_synthetic_tables_have_dates() -> None:
    changes = {f"task__{s}__source": "synthetic" for s in ("train_data", "validation_data")}
    config = table_config("", task__features={"date": ["d"]}, **changes)

    assert [*config.data.problems()] == []
    column = load_part(config.task, "train_data").column("d")
    assert column.kind == DATE
    assert len({*column.values.tolist()}) > 100


def _encode(fit: DateFit, *moments: datetime.datetime | None) -> np.ndarray:
    seconds = [
        math.nan if moment is None else (moment - datetime.datetime(1970, 1, 1)).total_seconds()
        for moment in moments
    ]
    inputs = days_and_seconds(tf.constant(seconds, tf.float64))
    return EncodeDates([fit])(inputs).numpy()


def _angle_of_year(moment: datetime.datetime) -> float:
    year = moment.year if moment.month >= 3 else moment.year - 1
    return 2 * math.pi * (moment - datetime.datetime(year, 3, 1)).days / 366


def test_the_encoding_is_that_of_the_calendar() -> None:
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


def test_missing_dates_are_zeros_and_set_a_flag() -> None:
    moment = datetime.datetime(2024, 1, 1)

    encoded = _encode(DateFit(0.0, 1.0, has_missing=True), moment, None)

    assert encoded.shape == (2, 6)
    assert encoded[0, -1] == 0
    assert encoded[1].tolist() == [0, 0, 0, 0, 0, 1]


def test_times_and_missing_values_of_training_decide_on_the_width(path: Path) -> None:
    config = table_config(path, task__features=FEATURES).task
    task = TabularTask(config)

    fits = task.fitted.dates

    assert (fits["when"].has_time, fits["when"].has_missing) == (True, False)
    assert (fits["day"].has_time, fits["day"].has_missing) == (False, True)
    arrays = make_arrays(config, load_part(config, "train_data"), task.fitted)
    assert arrays.arrays["features"]["dates"].shape[1] == 4
    assert arrays.arrays["features"]["dates"].dtype == np.int32


def test_a_column_without_time_has_days_and_seconds() -> None:
    column = Column("day", DATE, np.array([0, DAY - 1, -1, MISSING_DATE]))
    assert [column.text(row) for row in range(4)] == [
        "1970-01-01", "1970-01-01T23:59:59", "1969-12-31T23:59:59", "",
    ]  # fmt: skip
    assert column.is_missing().tolist() == [False, False, False, True]


@pytest.mark.parametrize("model", ["mlp", "wide_deep"])
def test_the_signature_takes_seconds(path: Path, model: str) -> None:
    config = table_config(path, task__features=FEATURES, task__model__name=model).task
    task = TabularTask(config)
    network = task.build_model()
    generator = np.random.default_rng(2)
    for variable in network.trainable_variables:
        variable.assign(generator.normal(size=variable.shape))
    serving = task.serving(network)
    part = load_part(config, "validation_data")
    features = make_arrays(config, part, task.fitted).arrays["features"]
    seconds = {
        name: [math.nan if value == MISSING_DATE else float(value) for value in column]
        for name, column in ((n, part.column(n).values.tolist()) for n in ("when", "day"))
    }

    outputs = serving.signatures["predict"](
        size=tf.constant(part.column("size").values),
        **{name: tf.constant(values, tf.float64) for name, values in seconds.items()},
    )

    # In a graph, as the signature: on some processors, fused kernels give other last bits.
    specs = {name: tf.TensorSpec([None, *x.shape[1:]], x.dtype) for name, x in features.items()}
    predict = tf.function(lambda x: tf.nn.softmax(network(x)["y"]), input_signature=[specs])
    expected = predict(features)
    np.testing.assert_array_equal(outputs["y"], expected)
    described = serving.signatures["columns"]()
    assert described["is_date"].numpy().tolist() == [False, True, True]
    predictor = task.predictor(serving.signatures)
    items = [*predictor.items([str(path)], [])][:3]
    assert all("probabilities" in one.data["y"] for one in predictor.predict(items))


def test_predictions_of_rows_read_dates_as_training_does(path: Path, tmp_path: Path) -> None:
    task = TabularTask(table_config(path, task__features=FEATURES).task)
    predictor = task.predictor(task.serving(task.build_model()).signatures)
    file = tmp_path / "rows.csv"
    file.write_text("size,when,day\n1,2024-02-29T10:30,2024-02-29\n1,29.2.2024,\n1,2024-02-29,NA\n")

    first, bad, last = predictor.predict([*predictor.items([str(file)], [])])

    assert "probabilities" in first.data["y"]
    assert "column 'when': got '29.2.2024', expected a date such as 2024-01-31" in bad.text
    assert "probabilities" in last.data["y"]


@pytest.mark.slow
def test_stopped_and_resumed_run_gets_the_same_weights(path: Path, tmp_path: Path) -> None:
    run_and_resume(table_config(path, task__features=FEATURES), tmp_path)
    content = json.loads((tmp_path / "parts" / "assets" / PREPROCESSING_FILE).read_text())
    assert content["dates"]["day"]["has_missing"] is True
