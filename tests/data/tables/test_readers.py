"""Tables of each format, and the errors that name file, row and column."""

import dataclasses
import datetime
import decimal
import gzip
import json
import sys
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from orbit_runner.data.tables import csv_file
from orbit_runner.data.tables.array_tables import array_table
from orbit_runner.data.tables.build import read_table
from orbit_runner.data.tables.columns import sort_texts
from orbit_runner.data.tables.dataset import TableDataset, TableOptions
from orbit_runner.data.tables.hashing import hash_texts
from orbit_runner.registry import TABLE_SOURCES
from orbit_runner.tasks.tabular.data_config import TableDataConfig
from tests.support.hugging_face import write_arrow
from tests.support.problems import raises
from tests.support.tables import WRITERS, make_rows, write_csv

KINDS = {"size": "number", "age": "number", "color": "category", "y": "category", "id": "key"}


def open_table(name, *paths, data_dir="", **options):
    settings = TableOptions(**{"missing_values": ("", "NA"), **options})
    load = TABLE_SOURCES.get(name).load().load
    dataset: TableDataset
    if name == "arrays":
        dataset = load(options=settings)
    else:
        dataset = load(data_dir=data_dir, input_path=tuple(map(str, paths)), options=settings)
    return dataset


def check_rows(table, rows):
    assert table.size == len(rows)
    for name in ("size", "age"):
        expected = [np.nan if row[name] is None else row[name] for row in rows]
        np.testing.assert_array_equal(table.columns[name].values, np.array(expected, np.float32))
    for name in ("color", "y"):
        column = table.columns[name]
        assert [column.text(row) for row in range(table.size)] == [row[name] or "" for row in rows]
        assert list(column.vocabulary) == sorted({row[name] for row in rows} - {None})


@pytest.mark.parametrize("source", sorted(WRITERS))
def test_every_format_gives_the_same_columns(source, tmp_path, monkeypatch):
    monkeypatch.setattr(csv_file, "_BLOCK_BYTES", 300)
    monkeypatch.setattr("orbit_runner.data.tables.jsonl._BLOCK_ROWS", 7)
    rows = make_rows()
    path = WRITERS[source](tmp_path / f"a.{source}", rows)
    (tmp_path / "other").mkdir()
    other = open_table("csv", write_csv(tmp_path / "other" / "a.csv", rows))
    keys = read_table(other, {"id": "key"}).columns["id"].values

    # A single Arrow file is not a directory that `datasets` saved.
    places = {"data_dir": str(tmp_path)} if source != "hugging_face" else {}
    paths = () if places else (path,)
    table = read_table(open_table(source, *paths, **places), KINDS)

    check_rows(table, rows)
    assert table.name == source
    np.testing.assert_array_equal(table.columns["id"].values, keys)
    assert table.places.text(50) == f"{path}, row 51"


@pytest.mark.parametrize("source", [entry.name for entry in TABLE_SOURCES.entries()])
def test_every_format_declares_settings_of_a_section(source):
    entry = TABLE_SOURCES.get(source)
    for settings in (TableOptions, TableDataConfig):
        assert {*entry.traits.settings} <= {field.name for field in dataclasses.fields(settings)}


def test_files_are_read_in_the_order_of_their_names(tmp_path):
    rows = make_rows()
    write_csv(tmp_path / "b.csv", rows[60:])
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(write_csv(tmp_path / "x", rows[:60]).read_bytes()))

    table = read_table(open_table("csv", tmp_path / "*.csv*"), KINDS)

    check_rows(table, rows)
    assert table.places.text(59) == f"{path}, row 60"
    assert table.places.text(60) == f"{tmp_path / 'b.csv'}, row 1"


def test_csv_settings_apply(tmp_path):
    (tmp_path / "a.csv").write_text('3|red |"a\nb"\n-| ?|c\n', encoding="utf-8")
    options = {"delimiter": "|", "column_names": ("n", "color", "t"), "missing_values": ("-", " ?")}

    reader = open_table("csv", tmp_path / "a.csv", **options)
    table = read_table(reader, {"n": "number", "color": "category", "t": "category"})

    assert reader.kinds == {"n": "number", "color": "category", "t": "category"}
    np.testing.assert_array_equal(table.columns["n"].values, np.array([3, np.nan], np.float32))
    assert [table.columns["color"].text(row) for row in range(2)] == ["red", ""]
    assert table.columns["t"].vocabulary == ("a\nb", "c")


# The values of each column, and their texts in all formats.
_DAY, _UTC = datetime.date(2024, 2, 1), datetime.timezone.utc
VALUES = {
    "boolean": ([True, False, None], ["true", "false", ""]),
    "integer": ([3, -4, 2**53 + 2], ["3", "-4", "9007199254740994"]),
    "float": ([3.0, 1e-5, None], ["3", "1e-05", ""]),
    "large": ([1e15, 1e16, float("inf")], ["1000000000000000", "1e+16", "inf"]),
    "odd": ([-0.0, float("nan"), 0.1], ["0", "", "0.1"]),
    "decimal": ([decimal.Decimal("1.50"), None, decimal.Decimal("2.00")], ["1.50", "", "2.00"]),
    "day": ([_DAY, None, datetime.date(1969, 1, 1)], ["2024-02-01", "", "1969-01-01"]),
    "time": (
        [datetime.datetime(2024, 2, 1), datetime.datetime(2024, 2, 1, 9, 5, 0, 120000), None],
        ["2024-02-01", "2024-02-01 09:05:00.12", ""],
    ),
    "zone": ([datetime.datetime(2024, 2, 1, 9, tzinfo=_UTC)] * 3, ["2024-02-01 09:00:00Z"] * 3),
    "text": (["007", "u\u0308ber", " x "], ["007", "über", "x"]),
}


def _write_values(path):
    table = pyarrow.table({name: pyarrow.array(values) for name, (values, _) in VALUES.items()})
    if path.suffix == ".csv":
        table.to_pandas().to_csv(path, index=False)
    elif path.suffix == ".jsonl":
        rows = [{name: values[row] for name, (values, _) in VALUES.items()} for row in range(3)]
        path.write_text("\n".join(json.dumps(row, default=str) for row in rows))
    elif path.suffix == ".parquet":
        parquet.write_table(table, path)
    else:
        write_arrow(path, table)


@pytest.mark.parametrize("kind", ["category", "key"])
@pytest.mark.parametrize("source", ["csv", "hugging_face", "jsonl", "parquet"])
def test_a_value_is_the_same_category_and_key_in_each_format(source, kind, tmp_path):
    path = tmp_path / f"a.{source}"
    _write_values(path)
    missing = ("", "NaN") if source == "csv" else ()

    table = read_table(
        open_table(source, path, missing_values=missing), dict.fromkeys(VALUES, kind)
    )

    for name, (_, texts) in VALUES.items():
        column = table.columns[name]
        if kind == "key":
            assert column.values.tolist() == hash_texts(texts).tolist(), name
        else:
            assert [column.text(row) for row in range(3)] == texts, name
            assert column.vocabulary == tuple(sort_texts([*{*texts} - {""}]))
    assert sort_texts(["10", "9", "2"]) == ["2", "9", "10"]


def test_parquet_types_become_kinds(tmp_path):
    columns = {
        "i": pyarrow.array([1, None, 3]),
        "b": pyarrow.array([True, False, None]),
        "d": pyarrow.array(["u", "v", "u"]).dictionary_encode(),
        "f": pyarrow.array([1.0, 2.5, None]),
        "l": pyarrow.array([[1], [2], [3]]),
    }
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    reader = open_table("parquet", tmp_path / "a.parquet")

    assert reader.kinds == {
        "i": "number", "b": "category", "d": "category", "f": "number",
        "l": "list<element: int64>",
    }  # fmt: skip


def test_a_function_returns_arrays(tmp_path, monkeypatch):
    (tmp_path / "own_table.py").write_text(
        "import numpy as np\n"
        "def load():\n"
        "    return {'x': np.arange(6.0).reshape(3, 2), 'y': np.array(['a', 'b', 'a'])}\n"
        "def uneven():\n"
        "    return {'x': np.zeros(3), 'y': np.zeros(2)}\n"
        "def wrong():\n"
        "    return 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    table = read_table(
        open_table("arrays", function="own_table:load"), {"x_1": "number", "y": "category"}
    )

    assert table.columns["x_1"].values.tolist() == [1, 3, 5]
    assert table.columns["y"].vocabulary == ("a", "b")
    for function, code in (
        ("own_table:uneven", "bad-data"),
        ("own_table:wrong", "bad-data"),
        ("own_table:absent", "import-failed"),
        ("own_table", "import-failed"),
    ):
        with raises(code):
            open_table("arrays", function=function)
    del sys.modules["own_table"]


@pytest.mark.parametrize(
    ("source", "text", "code"),
    [
        ("csv", "a,b\n1,2\n3\n", "damaged-file"),
        ("csv", "a,a\n1,2\n", "set-twice"),
        ("csv", "a,b\n1,2\n2,3\nx,4\n", "bad-record"),
        ("csv", "a,b\n1,2\n1e39,3\n", "bad-record"),
        ("csv", "a,b\n", "empty-data"),
        ("jsonl", '{"a": 1}\n[2]\n', "bad-record"),
        ("jsonl", '{"a": 1}\n{"a": [2]}\n', "bad-record"),
        ("jsonl", '{"a": 1}\n{"a": "x"}\n', "bad-record"),
        ("parquet", "PAR1", "damaged-file"),
        ("npz", "PK", "damaged-file"),
    ],
)  # fmt: skip
def test_bad_files_are_reported_with_row_and_column(source, text, code, tmp_path):
    (tmp_path / f"a.{source}").write_text(text)

    with raises(code):
        read_table(open_table(source, data_dir=str(tmp_path)), {"a": "number"})


@pytest.mark.parametrize("kind", ["string_view", "dictionary"])
def test_parquet_text_that_is_not_utf8_is_reported_with_row_and_column(kind, tmp_path, monkeypatch):
    offsets, data = np.array([0, 1, 2, 3], np.int32), b"a\xffb"
    buffers = [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(data)]
    texts = pyarrow.Array.from_buffers(pyarrow.string(), 3, buffers)
    if kind == "dictionary":
        texts = texts.dictionary_encode()
    elif kind != "string":
        texts = texts.cast(getattr(pyarrow, kind)())
    parquet.write_table(pyarrow.table({"x": [1, 2, 3], "t": texts}), tmp_path / "a.parquet")

    # A file's dictionary has the texts of all blocks, and the first one has no damaged text.
    monkeypatch.setattr("orbit_runner.data.tables.arrow.BLOCK_ROWS", 1)
    with raises("bad-record"):
        read_table(open_table("parquet", tmp_path / "a.parquet"), {"x": "number", "t": "category"})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([10**30, 1], "has an integer that does not fit into 64 bits"),
        (["\ud800", "a"], "has a text that is not valid Unicode"),
        ([1, "a"], "Could not convert 'a' with type str"),
    ],
)
def test_python_object_without_arrow_type_is_reported_with_its_column(values, message):
    array = np.array(values, object)

    with raises("bad-data"):
        array_table("arrays", [("own:load", {"x": array})])


@pytest.mark.parametrize("source", ["csv", "npz", "parquet"])
def test_files_with_fewer_columns_are_refused_and_more_are_a_warning(source, tmp_path, caplog):
    rows = make_rows(5)
    fewer = [{key: value for key, value in row.items() if key != "age"} for row in rows]
    first, second = (
        WRITERS[source](tmp_path / f"{name}.{source}", values)
        for name, values in (("a", rows), ("b", fewer))
    )

    with raises("unknown-column"):
        open_table(source, data_dir=str(tmp_path))
    first.rename(tmp_path / f"c.{source}")
    assert "age" not in open_table(source, data_dir=str(tmp_path)).kinds
    assert f"only the columns of {second.name} are used, not age" in caplog.text


@pytest.mark.parametrize(
    ("paths", "data_dir", "code"),
    [((), "", "not-set"), ((), "here", "missing-file"), (("x.csv",), "", "missing-file")],
)
def test_missing_files_are_reported(paths, data_dir, code):
    with raises(code):
        open_table("csv", *map(Path, paths), data_dir=data_dir)
