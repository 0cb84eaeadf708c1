"""What a table contains is decided by all of its cells, and what is left out is named."""

import datetime
import json
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schema.task_data import task_data
from orbit_runner.data.tables import csv_file
from orbit_runner.tasks.table_checks import unused_columns
from orbit_runner.tasks.tabular.sources import table_query
from tests.support.problems import pairs

ROWS = 400
SECTIONS = ("train_data", "validation_data")


def _config(path, source="", **settings):
    """The task of `breast_cancer` on other files; `__` in a name stands for a dot."""
    changes = {"split": "null", "target": "y", "train_data__global_batch_size": 8}
    for section in SECTIONS:
        changes |= {f"{section}__source": source or Path(path).suffix[1:]}
        changes |= {f"{section}__input_path": str(path)}
    changes |= settings
    flags = tuple(f"task.{name.replace('__', '.')}={value}" for name, value in changes.items())
    return resolve(Request(experiment="breast_cancer", params_overrides=flags)).config.task


def _problems(config):
    return dict(pairs(task_data(config).problems()))


def _columns(**columns):
    return {**columns, "y": ["no", "yes"] * (ROWS // 2)}


def _write(path, columns):
    rows = [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".csv":
        lines = [list(columns), *(row.values() for row in rows)]
        path.write_text("".join(",".join(f'"{c}"' for c in line) + "\n" for line in lines))
    else:
        texts = {
            name: values if len({*map(type, values)}) == 1 else [*map(str, values)]
            for name, values in columns.items()
        }
        parquet.write_table(pyarrow.table(texts), path)
    return path


FORMATS = ("csv", "jsonl", "parquet")


@pytest.mark.parametrize("source", FORMATS)
def test_one_odd_cell_is_an_error_that_names_it_and_the_settings(source, tmp_path):
    numbers = [number + 0.5 for number in range(ROWS)]
    numbers[298] = "None"
    path = _write(tmp_path / f"a.{source}", _columns(x=numbers))

    (message,) = _problems(_config(path)).values()

    assert message.startswith(f"{path}, row 299: column 'x': got 'None'")
    assert "list it in missing_values" in message
    settings = {f"{s}__missing_values": "[None]" for s in SECTIONS}
    mended = _config(path, **settings, features__numeric="[x]" if source == "parquet" else "[]")
    assert _problems(mended) == {}
    column = table_query(mended).part("train_data").column("x")
    assert column.kind == "number"
    assert np.flatnonzero(column.is_missing()).tolist() == [298]
    assert _problems(_config(path, features__categorical="[x]")) == {}


@pytest.mark.parametrize("source", ["csv", "jsonl"])
def test_odd_cell_anywhere_in_the_files_is_an_error(source, tmp_path, monkeypatch):
    monkeypatch.setattr(csv_file, "_BLOCK_BYTES", 1000)
    for file, odd_row in (("a", None), ("b", 390)):
        numbers = list(range(ROWS))
        if odd_row is not None:
            numbers[odd_row] = "?"
        _write(tmp_path / f"{file}.{source}", _columns(x=numbers))

    (message,) = _problems(_config(tmp_path / f"*.{source}", source)).values()

    assert f"b.{source}, row 391: column 'x': got '?'" in message


def test_leading_zero_after_the_first_block_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_file, "_BLOCK_BYTES", 1000)
    path = _write(tmp_path / "a.csv", _columns(zip=[*range(ROWS - 1), "007"]))
    (message,) = _problems(_config(path)).values()
    assert f"{path}, row {ROWS}: column 'zip': got '007', which has a leading zero" in message
    assert _problems(_config(path, features__numeric="[zip]")) == {}


def test_dates_as_texts_are_refused_and_typed_times_left_out(tmp_path):
    start = datetime.datetime(2024, 1, 1)
    times = [(start + datetime.timedelta(minutes=n)).time() for n in range(ROWS)]
    days = [f"2024-{n % 12 + 1:02}-{n % 28 + 1:02}" for n in range(ROWS)]
    numbers = [n / 2 for n in range(ROWS)]
    path = _write(tmp_path / "a.parquet", _columns(a=numbers, when=times, day=days))

    (message,) = _problems(_config(path)).values()

    assert "column 'day': got '2024-01-01' in a column of texts, most of which are date" in message
    mended = _config(path, features__exclude="[when, day]")
    assert _problems(mended) == {}
    assert table_query(mended).feature_kinds() == {"a": "number"}
    assert "columns that are not used: when" in unused_columns(table_query(mended))[0]
    declared = _config(path, features__numeric="[a]", features__categorical="[when]")
    assert _problems(declared) == {}
    assert table_query(declared).part("train_data").column("when").text(0).startswith("00:00:00")


def test_columns_that_are_not_used_are_listed(tmp_path):
    parts = ["train"] * 300 + ["validation"] * 90 + ["trian"] * 10
    columns = _columns(x=list(range(ROWS)), part=parts)
    path = _write(tmp_path / "a.csv", columns | {"z": [1] * ROWS})
    config = _config(path, split__column="part", features__exclude="[z]")

    assert unused_columns(table_query(config)) == ["columns that are not used: z"]
    assert task_data(config).summary().left_out == unused_columns(table_query(config))


@pytest.mark.parametrize(
    ("columns", "settings", "path", "message"),
    [
        ({"y": [*range(399), "x"]}, {"target": "{column: y, type: regression}"},
         "target.column", "got 'x', expected a number"),
        ({"w": [1] * 399 + ["x"]}, {"weight_column": "w"}, "weight_column", "got 'x', expected"),
        ({}, {"features__exclude": "[xx]"}, "features.exclude", "unknown column 'xx'"),
    ],
)  # fmt: skip
def test_odd_targets_and_weights_are_errors(columns, settings, path, message, tmp_path):
    table = _columns(x=list(range(ROWS))) | columns
    problems = _problems(_config(_write(tmp_path / "a.csv", table), **settings))
    assert list(problems) == [path]
    assert message in problems[path]


def test_quotation_mark_without_an_end_is_an_error(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('x,y\n1,no\n2,yes\n3,"no\n4,yes\n5,no\n')
    message = _problems(_config(path))["train_data.input_path"]
    assert "a.csv, row 3: has a quotation mark without an end" in message


def test_spaces_do_not_decide_on_the_kind(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x,zip,c,y\n" + "1, 07, u,no\n 2.5,10,v ,yes\n NA, 11,u,no\n" * 9)
    config = _config(path)
    assert _problems(config) == {}
    kinds = table_query(config).feature_kinds()
    assert kinds == {"x": "number", "zip": "category", "c": "category"}
    assert table_query(config).part("train_data").column("x").is_missing().sum() == 9


def test_each_type_of_parquet_is_a_feature_or_named(tmp_path):
    texts, numbers = ["u", "v"] * (ROWS // 2), [*range(ROWS)]
    categories = {
        "view": pyarrow.array(texts, pyarrow.string_view()),
        "large": pyarrow.array(texts, pyarrow.large_string()),
        "coded": pyarrow.array(texts).dictionary_encode(),
    }
    kinds = {
        "half": pyarrow.array([float(n) for n in numbers], pyarrow.float16()),
        "huge": pyarrow.array([2**64 - 1 - n for n in numbers], pyarrow.uint64()),
        "decimal": pyarrow.array([Decimal(n) for n in numbers]),
    }
    others = {"record": pyarrow.array([{"n": n} for n in numbers]), "bytes": [b"x"] * ROWS}
    table = pyarrow.table(_columns(**categories, **kinds, **others))
    parquet.write_table(table, tmp_path / "a.parquet")
    config = _config(tmp_path / "a.parquet")

    assert _problems(config) == {}
    expected = dict.fromkeys(kinds, "number") | dict.fromkeys(categories, "category")
    assert table_query(config).feature_kinds() == expected
    (unused,) = unused_columns(table_query(config))
    assert all(name in unused for name in ("record (struct<", "bytes (binary)"))
