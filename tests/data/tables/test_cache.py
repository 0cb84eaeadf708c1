"""Columns that took long to read are read once."""

import pytest

from orbit_runner.data.tables import build as module
from orbit_runner.data.tables.build import build_columns, read_table
from tests.data.tables.test_readers import KINDS, check_rows, open_table
from tests.support.tables import make_rows, write_csv


@pytest.fixture
def built(monkeypatch, tmp_path):
    """The names of the columns of each time that files are read."""
    calls = []

    def build(reader, kinds):
        calls.append(sorted(kinds))
        return build_columns(reader, kinds)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "build_columns", build)
    monkeypatch.setattr(module, "KEPT_SECONDS", -1.0)
    return calls


def _read(path, kinds=KINDS):
    return read_table(open_table("csv", path), kinds)


def test_later_starts_map_the_columns_and_read_only_new_ones(built, tmp_path):
    rows = make_rows()
    path = write_csv(tmp_path / "a.csv", rows)

    first, second = _read(path), _read(path)

    check_rows(first, rows)
    check_rows(second, rows)
    assert built == [sorted(KINDS)]
    assert not second.columns["size"].values.flags.owndata  # It is mapped into memory.
    assert second.places.text(99) == f"{path}, row 100"

    table = _read(path, KINDS | {"w": "number", "age": "category"})

    assert built == [sorted(KINDS), ["age", "w"]]
    assert table.columns["w"].values[:4].tolist() == [1, 2, 3, 1]
