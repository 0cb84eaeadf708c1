"""Text files as tables: a class for each file, lines as rows."""

import gzip

from orbit_runner.data.tables.build import read_table
from orbit_runner.data.tables.dataset import TableOptions
from orbit_runner.data.tables.text_files import TEXT_FILES
from tests.support.problems import raises

Files = tuple[tuple[str, tuple[str, ...]], ...]


def _read(folder, files):
    options = TableOptions(files=files)
    reader = TEXT_FILES.load(data_dir=str(folder), options=options)
    return read_table(reader, dict.fromkeys(reader.kinds, "category"))


def _rows(source):
    text, label = source.columns["text"], source.columns["label"]
    return [(text.text(n), label.text(n), source.places.text(n)) for n in range(source.size)]


def test_rows_are_the_lines_of_the_files_in_order(tmp_path):
    (tmp_path / "b1.txt").write_bytes("ünd\r\n\r\n last ".encode())
    (tmp_path / "b2.txt").write_bytes(b"two\n")
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"one\xe2\x80\xa8line\n"))

    table = _read(tmp_path, (("b", ("b*.txt",)), ("a", ("a.txt.gz",))))

    assert _rows(table) == [
        ("ünd", "b", f"{tmp_path / 'b1.txt'}, row 1"),
        ("", "b", f"{tmp_path / 'b1.txt'}, row 2"),
        ("last", "b", f"{tmp_path / 'b1.txt'}, row 3"),
        ("two", "b", f"{tmp_path / 'b2.txt'}, row 1"),
        ("one\u2028line", "a", f"{tmp_path / 'a.txt.gz'}, row 1"),
    ]


def test_files_of_a_class_may_be_a_list(tmp_path):
    for name in ("x", "y", "z"):
        (tmp_path / name).write_text(f"{name}\n")
    table = _read(tmp_path, (("a", ("z", "x")), ("b", ("y",))))
    assert [row[:2] for row in _rows(table)] == [("z", "a"), ("x", "a"), ("y", "b")]


def test_lines_that_are_not_utf8_are_reported(tmp_path):
    (tmp_path / "x").write_bytes(b"one\n\xff\xfe rubbish\nthree\n")
    with raises("bad-record") as caught:
        _read(tmp_path, (("a", ("x",)),))
    assert str(caught.value).startswith(f"{tmp_path / 'x'}:2: is not valid UTF-8")
