"""`predict` reads rows as training does, in each format; a bad row is reported in its place."""

import gzip
import io

import pytest

from orbit_runner.data.tables.build import read_table
from orbit_runner.data.tables.dataset import TableOptions
from orbit_runner.errors import DataError
from orbit_runner.registry import TABLE_SOURCES
from orbit_runner.tasks.tabular.data_config import TableDataConfig
from orbit_runner.tasks.tabular.rows import file_rows, stream_rows
from tests.support.problems import raises

COLUMNS = ("a", "b")
MARK = b"\xef\xbb\xbf"


def _data(source="csv", **settings):
    return TableDataConfig(source=source, **settings)


def _trained(path, data):
    """The texts of the columns as training reads them."""
    options = TableOptions(
        delimiter=data.delimiter,
        column_names=tuple(data.column_names),
        missing_values=data.missing_texts,
    )
    source = data.source if path.suffix != ".parquet" else "parquet"
    reader = (
        TABLE_SOURCES.get(source).load().load(data_dir="", input_path=(str(path),), options=options)
    )
    table = read_table(reader, dict.fromkeys(COLUMNS, "category"))
    return [tuple(table.columns[n].text(row) for n in COLUMNS) for row in range(table.size)]


def _asked(rows):
    texts = []
    for row in rows:
        assert not row.problem, row
        texts.append(tuple(row.text(name) for name in COLUMNS))
    return texts


@pytest.mark.parametrize(
    ("name", "content", "data"),
    [
        ("a.csv", MARK + b"a,b\n1,x\n", _data()),
        ("a.csv", b"a,b\r\n1, x \r\n\r\n2,\r\n", _data()),
        ("a.csv", b'a,b\n"1\r\n2","x ""y"", z"\n', _data()),
        ("a.csv", b"a,b\n1," + b"x" * 300_000 + b"\n", _data()),
        ("a.csv", "a,b\n1,x\u2028y\x85z\x0c!\n".encode(), _data()),
        ("a.csv.gz", gzip.compress(MARK + b"a,b\n1,x\n"), _data()),
        ("a.csv", b"a|b\n1| NA\n-|x\n", _data(delimiter="|", missing_values=["-", "NA"])),
        ("a.csv", b"1,x\n2,y\n", _data(column_names=["a", "b"])),
        ("a.jsonl", MARK + b'{"a": 1, "b": "x"}\n', _data("jsonl")),
        ("a.jsonl", '{"a": 1.0, "b": "x\u2028y\x85"}\r\n'.encode(), _data("jsonl")),
        ("a.jsonl", b'{"a": 1,\r"b": true}\n{"a": null, "b": "NA"}', _data("jsonl")),
        ("a.jsonl", b'{"a": "?", "b": -1}\n', _data("jsonl", missing_values=["?", "-1"])),
        ("a.jsonl", b'{"a": true, "b": -9}\n', _data("jsonl", missing_values=["True", " -9.0"])),
        ("a.csv", b"a,b\n-9,true\n-9.0,TRUE\n", _data(missing_values=["-9.0", "True"])),
        ("a.jsonl.gz", gzip.compress(b'{"a": 1, "b": "x"}\n'), _data("jsonl")),
    ],
)
def test_rows_are_those_of_training(name, content, data, tmp_path):
    path = tmp_path / name
    path.write_bytes(content)
    trained = _trained(path, data)
    assert len(trained) > 0
    assert _asked(file_rows(str(path), data)) == trained
    if path.suffix != ".gz":
        text = content.decode()
        for newline in ("\n", ""):  # However standard input splits lines.
            lines = io.StringIO(text, newline=newline)
            if "\r" not in text or newline == "\n":
                assert _asked(stream_rows("standard input", lines, data)) == trained


def test_bad_cell_is_reported_and_the_others_read(tmp_path):
    path = tmp_path / "rows"
    path.write_text('{"a": 1, "b": [2]}\n{"a": 1, "b": "\\ud800"}\n{"a": 1, "b": "x"}\n{"a": 2}\n')
    for rows in (file_rows(str(path), _data()), stream_rows("-", path.open(), _data())):
        first, second, *others = rows
        with pytest.raises(ValueError, match=r"got \[2\], expected a text"):
            first.text("b")
        with pytest.raises(ValueError, match="is not valid UTF-8"):
            second.text("b")
        # A key that a row lacks is a missing value.
        assert [row.text("b") for row in others] == ["x", ""]
        assert [row.where.rpartition(", ")[2] for row in others] == ["row 3", "row 4"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a,b\n1,x\n2\n3,y\n", "Expected 2 columns, got 1"),
        (b"a,b\n1,x\n2,\xff\n3,y\n", "save the file as UTF-8"),
        (b'a,b\n1,x\n2,y\n3,"z\n4,u\n', "row 3"),
        (b'{"a": 1, "b": "x"}\nno\n{"a": 1, "b": "y"}\n', "row 2"),
        (b'{"a": 1, "b": "x"}\n{"a": 1, "b": "\xff"}\n', "row 2"),
    ],
)
def test_damaged_line_is_an_error_of_the_file(content, message, tmp_path):
    path = tmp_path / "rows"
    path.write_bytes(content)
    lines = io.StringIO(content.decode(errors="surrogateescape"), newline="\n")
    for where, rows in (
        (str(path), file_rows(str(path), _data())),
        ("standard input", stream_rows("standard input", lines, _data())),
    ):
        with pytest.raises(DataError, match=message) as caught:
            list(rows)
        assert str(caught.value).startswith(where)


def test_files_that_cannot_be_read_are_named(tmp_path):
    (tmp_path / "utf16.csv").write_bytes("a,b\n1,x\n".encode("utf-16"))
    (tmp_path / "torn.csv.gz").write_bytes(gzip.compress(b"a,b\n" + b"1,x\n" * 9999)[:50])
    (tmp_path / "twice.csv").write_bytes(b"a,a\n1,2\n")
    for name, code in (
        ("utf16.csv", "damaged-file"),
        ("torn.csv.gz", "damaged-file"),
        ("twice.csv", "set-twice"),
    ):
        with raises(code):
            list(file_rows(str(tmp_path / name), _data()))
