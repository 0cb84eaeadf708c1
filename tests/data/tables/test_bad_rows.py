"""Rows that cannot be read are an error by default, or left out up to `max_bad_records`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from orbit_runner.config.fingerprint import config_fingerprint
from orbit_runner.data.tables.cache import read_table
from orbit_runner.data.tables.dataset import TableOptions
from orbit_runner.errors import DataError
from orbit_runner.registry import TABLE_SOURCES
from orbit_runner.tasks.tabular.sources import load_part
from orbit_runner.utils.log import PlainMessages, log_scope
from tests.support.problems import raises
from tests.support.tables import make_rows, table_config, write_csv

KINDS = {"size": "number", "age": "number", "color": "category"}
BAD = (3, 40)


def _csv(folder: Path) -> Path:
    rows = make_rows()
    rows[BAD[0]]["size"] = "tall"
    rows[BAD[1]]["age"] = "1e300"
    return write_csv(folder / "a.csv", rows)


def _jsonl(folder: Path) -> Path:
    lines = [json.dumps(row).encode() for row in make_rows()]
    lines[BAD[0]] = lines[BAD[0]][:20]
    lines[BAD[1]] = lines[BAD[1]].replace(b'"small"', b'"\xff"').replace(b'"big"', b'"\xff"')
    path = folder / "a.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


WRITERS = {"csv": _csv, "jsonl": _jsonl}


def _read(source: str, path: Path, limit: int, kept_seconds: float = 1e9):
    options = TableOptions(missing_values=("",), max_bad_records=limit)
    reader = TABLE_SOURCES.get(source).load()(data_dir="", input_path=(str(path),), options=options)
    return read_table(reader, KINDS, kept_seconds=kept_seconds)


@pytest.mark.parametrize("source", WRITERS)
def test_bad_row_is_an_error_that_names_it_by_default(source: str, tmp_path: Path) -> None:
    path = WRITERS[source](tmp_path)

    with pytest.raises(DataError) as caught:
        _read(source, path, 0)

    lines = str(caught.value).splitlines()
    assert lines[0].startswith(f"{path}, row 4: ")
    assert lines[-1].startswith("to skip such rows, set max_bad_records")


@pytest.mark.parametrize("source", WRITERS)
def test_bad_rows_up_to_the_limit_are_found_and_listed(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path, good = WRITERS[source](tmp_path), make_rows()

    for _ in range(2):  # The second time, from the cache.
        notes: list[str] = []
        with log_scope(PlainMessages(notes.append)):
            found = _read(source, path, 2, -1.0)

        assert found.bad_rows == BAD
        assert found.size == len(good)
        expected = [row["size"] for row in good]
        kept = np.setdiff1d(np.arange(len(good)), BAD)
        np.testing.assert_array_equal(
            found.columns["size"].values[kept], np.array(expected, np.float32)[kept]
        )
        (text,) = notes
        assert f"2 of {len(good)} rows cannot be read and are left out, at most 2" in text
        assert f"{path}, row 4" in text
        assert f"{path}, row 41" in text


@pytest.mark.parametrize("source", WRITERS)
def test_more_bad_rows_than_the_limit_are_an_error_with_a_list(source: str, tmp_path: Path) -> None:
    path = WRITERS[source](tmp_path)

    with pytest.raises(DataError) as caught:
        _read(source, path, 1)

    assert "2 of 100 rows cannot be read, more than max_bad_records=1" in str(caught.value)
    assert f"{path}, row 41" in str(caught.value)
    assert caught.value.field == "max_bad_records"


def test_parts_lack_bad_rows_and_are_otherwise_unchanged(tmp_path: Path) -> None:
    (tmp_path / "good").mkdir()
    good = write_csv(tmp_path / "good" / "a.csv", make_rows())
    limits = {f"task__{name}_data__max_bad_records": 5 for name in ("train", "validation")}
    # By a column without bad values, so that no row changes to another part.
    by = {"task__split__hash_of": ["color"]}
    bad = table_config(_csv(tmp_path), **limits, **by).task
    whole = table_config(good, **by).task
    left_out = 0
    for section in ("train_data", "validation_data"):
        part, before = load_part(bad, section), load_part(whole, section)
        rows = np.arange(part.source.size) if part.rows is None else part.rows
        assert before.rows is not None
        kept = before.rows[~np.isin(before.rows, BAD)]
        np.testing.assert_array_equal(rows, kept)
        left_out += len(before.rows) - len(kept)
    assert left_out == len(BAD)


def test_limit_does_not_change_the_fingerprint(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", make_rows())
    limits = {f"task__{name}_data__max_bad_records": 5 for name in ("train", "validation")}
    assert config_fingerprint(table_config(path)) == config_fingerprint(
        table_config(path, **limits)
    )


def test_limit_is_refused_for_sources_that_do_not_read_it(tmp_path: Path) -> None:
    with raises("no-effect", "task.train_data.max_bad_records"):
        table_config(tmp_path, task__train_data__source="tfds", task__train_data__tfds_name="a",
                     task__train_data__max_bad_records=1)  # fmt: skip
