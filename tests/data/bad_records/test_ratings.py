"""Lines of ratings that cannot be parsed are left out up to `max_bad_records`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orbit_runner.config.fingerprint import config_fingerprint
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.datasets import movielens
from orbit_runner.tasks.recommendation.data import RatingExamples, load_source
from orbit_runner.utils.log import PlainMessages, log_scope
from tests.support.problems import pairs, raises
from tests.support.ratings import ratings_config, write_100k

# By the line from 1: the first, two in a row, and the last but one.
BAD = {1: b"", 40: b"7\t8", 41: b"a\tb\tc\td"}
SECTIONS = ("train_data", "validation_data")


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """A directory with bad lines, and one without them."""
    lines = write_100k(tmp_path / "set").read_bytes().split(b"\n")
    damaged, clean = tmp_path / "damaged", tmp_path / "clean"
    for folder in (damaged, clean):
        folder.mkdir()
    good = [line for number, line in enumerate(lines, 1) if number not in BAD]
    bad = [BAD.get(number, line) for number, line in enumerate(lines, 1)]
    (clean / "u.data").write_bytes(b"\n".join(good))
    (damaged / "u.data").write_bytes(b"\n".join(bad))
    return damaged, clean


def _config(folder: Path, limit: int = 0, **changes: Any) -> ExperimentConfig:
    settings: dict[str, Any] = {}
    for section in SECTIONS:
        settings |= {
            f"task__{section}__source": "movielens",
            f"task__{section}__data_dir": str(folder),
            f"task__{section}__max_bad_records": limit,
        }
    return ratings_config(**{**settings, **changes})


@pytest.mark.parametrize("chunk_bytes", [100, 2**24])
def test_ratings_are_those_of_a_file_without_the_bad_lines(
    folders: tuple[Path, Path], chunk_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(movielens, "_CHUNK_BYTES", chunk_bytes)
    damaged, clean = folders
    notes: list[str] = []
    with log_scope(PlainMessages(notes.append)):
        found = movielens.load(data_dir=str(damaged), max_bad_records=3)
    expected = movielens.load(data_dir=str(clean))
    for name in ("users", "items", "times"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert found.bad_lines == tuple(BAD)
    total = len(found.users) + len(BAD)
    (text,) = notes
    assert f"3 of {total:,} lines cannot be read and are left out, at most 3" in text
    for number in BAD:
        assert f"{damaged / 'u.data'}:{number}: got " in text


def test_choices_of_the_task_are_those_of_a_file_without_the_bad_lines(
    folders: tuple[Path, Path],
) -> None:
    damaged, clean = folders
    found, expected = (
        load_source(_config(folder, limit).task.train_data)  # type: ignore[arg-type]
        for folder, limit in ((damaged, 3), (clean, 0))
    )
    for name in ("user_ids", "item_ids", "users", "items", "held_out"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_ratings_are_named_by_their_lines_in_the_file(folders: tuple[Path, Path]) -> None:
    damaged, clean = folders
    found = RatingExamples(_config(damaged, 3).task.train_data)  # type: ignore[arg-type]
    expected = RatingExamples(_config(clean).task.train_data)  # type: ignore[arg-type]
    rows = found.order.rows(3)
    chosen = np.arange(len(rows.examples))
    lines = (damaged / "u.data").read_bytes().split(b"\n")
    for one, two in zip(found.describe(rows, chosen), expected.describe(rows, chosen), strict=True):
        user = int(lines[one["line"] - 1].split(b"\t")[0])
        assert user == one["user"] == two["user"]
        before = sum(number < one["line"] for number in BAD)
        assert one["line"] == two["line"] + before
        assert found.find(f"u.data:{one['line']}") == expected.find(f"u.data:{two['line']}")
    with raises("unknown-example", "--example"):
        found.find("u.data:40")


def test_more_bad_lines_than_the_limit_are_an_error_with_a_list(
    folders: tuple[Path, Path],
) -> None:
    problems = dict(pairs(_config(folders[0], 2).data.problems()))
    text = problems["train_data.max_bad_records"]
    assert "lines cannot be read, more than max_bad_records=2" in text
    for number in BAD:
        assert f"{folders[0] / 'u.data'}:{number}: got " in text


def test_first_bad_line_is_an_error_by_default(folders: tuple[Path, Path]) -> None:
    with raises("bad-record"):
        movielens.load(data_dir=str(folders[0]))


def test_limit_keeps_the_fingerprint_and_unknown_sources_are_refused(
    folders: tuple[Path, Path],
) -> None:
    one, two = _config(folders[1]), _config(folders[1], 3)
    assert config_fingerprint(one) == config_fingerprint(two)
    with raises("not-allowed", "task.train_data.source"):
        _config(folders[1], 3, task__train_data__source="lists")
