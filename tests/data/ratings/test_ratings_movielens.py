"""MovieLens files: what is read, where it is found, and the errors for malformed lines."""

import numpy as np
import pytest

from orbit_runner.data import disk_cache
from orbit_runner.datasets import movielens
from tests.support.problems import raises

ROWS = [(196, 242, 3, 881250949), (186, 302, 4, 891717742), (1, 3952, 5, 874965758)]
NAMES = {"100k": "u.data", "1m": "ratings.dat", "20m": "ratings.csv"}


def _text(variant, rows=ROWS):
    if variant == "20m":
        lines = [f"{user},{item},{rating - 0.5},{time}" for user, item, rating, time in rows]
        return "\n".join(["userId,movieId,rating,timestamp", *lines]) + "\n"
    separator = {"100k": "\t", "1m": "::"}[variant]
    return "".join(separator.join(map(str, row)) + "\n" for row in rows)


def _write(folder, variant, text=None):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / NAMES[variant]
    path.write_bytes((_text(variant) if text is None else text).encode())
    return path


def _assert_rows(ratings, rows=ROWS):
    expected = np.array(rows)
    np.testing.assert_array_equal(ratings.users, expected[:, 0])
    np.testing.assert_array_equal(ratings.items, expected[:, 1])
    np.testing.assert_array_equal(ratings.times, expected[:, 3])


@pytest.mark.parametrize("variant", NAMES)
@pytest.mark.parametrize("below", [False, True])
def test_each_variant_is_read_in_file_order(tmp_path, variant, below):
    _write(tmp_path / f"ml-{variant}" if below else tmp_path, variant)
    interactions = movielens.load(data_dir=str(tmp_path))
    assert interactions.name == f"movielens {variant}"
    _assert_rows(interactions)


@pytest.mark.parametrize("variant", NAMES)
def test_crlf_and_missing_final_newline_are_accepted(tmp_path, variant):
    _write(tmp_path, variant, _text(variant).replace("\n", "\r\n")[:-2])
    _assert_rows(movielens.load(data_dir=str(tmp_path)))


def test_input_path_selects_the_ratings_file(tmp_path):
    path = _write(tmp_path, "1m")
    _assert_rows(movielens.load(input_path=(str(path),)))
    other = path.rename(tmp_path / "mine.dat")
    _assert_rows(movielens.load(data_dir=str(tmp_path), input_path=(other.name,)))
    with raises("not-allowed") as caught:
        movielens.load(input_path=(str(other.rename(tmp_path / "mine.txt")),))
    assert caught.value.field == "input_path"


@pytest.mark.parametrize(
    ("variant", "line", "problem"),
    [
        ("100k", "1\t2\t3", "Expected 4 columns, got 3"),
        ("100k", "", "has no user"),
        ("100k", "1\tx2\t3\t4", "invalid value 'x2'"),
        ("100k", "-1\t2\t3\t4", "invalid value '-1'"),
        ("100k", "1\t\t3\t4", "has no item"),
        ("100k", "x" * 10_000, "Expected 4 columns, got 1"),
        ("1m", "1::2::3:4", "Expected 7 columns, got 6"),
        ("1m", "1:2:3:4:5:6:7", "invalid value '2'"),
        ("20m", "1.0,2,3.5,4", "invalid value '1.0'"),
    ],
)
def test_malformed_line_is_reported_with_its_number(tmp_path, variant, line, problem):
    path = _write(tmp_path, variant, f"{_text(variant)}{line}\n{_text(variant, ROWS[:1])}")
    with raises("bad-record") as caught:
        movielens.load(data_dir=str(tmp_path))
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert f"Row #{len(ROWS) + (2 if variant == '20m' else 1)}: " in message
    assert problem in message
    assert len(message) < 400
    assert caught.value.field == "data_dir"


@pytest.mark.parametrize(
    ("variant", "text", "code"),
    [
        ("100k", "", "bad-record"),
        ("20m", "userId,movieId,rating,timestamp\n", "empty-data"),
        ("20m", "1,2,3.5,4\n", "bad-record"),
    ],
)
def test_empty_file_or_wrong_header_is_rejected(tmp_path, variant, text, code):
    _write(tmp_path, variant, text)
    with raises(code):
        movielens.load(data_dir=str(tmp_path))


def test_missing_directory_or_ratings_file_is_reported(tmp_path):
    with raises("not-set"):
        movielens.load()
    with raises("missing-file"):
        movielens.load(data_dir=str(tmp_path / "x"))
    with raises("missing-file"):
        movielens.load(data_dir=str(tmp_path))


def test_several_files_in_one_directory_require_input_path(tmp_path):
    _write(tmp_path, "100k")
    _write(tmp_path / "ml-20m", "20m")
    with raises("not-allowed") as caught:
        movielens.load(data_dir=str(tmp_path))
    assert caught.value.field == "input_path"
    _assert_rows(movielens.load(data_dir=str(tmp_path), input_path=("ml-20m/ratings.csv",)))


@pytest.fixture
def kept(own_cache, monkeypatch):
    """Caches all ratings, however fast they were parsed."""
    monkeypatch.setattr(disk_cache, "KEPT_SECONDS", -1.0)


@pytest.mark.usefixtures("kept")
def test_large_file_is_parsed_once(tmp_path, monkeypatch):
    for rows in (ROWS, [*ROWS, (7, 8, 1, 2**40)]):
        folder = tmp_path / str(len(rows))
        folder.mkdir()
        (folder / "ratings.dat").write_text(_text("1m", rows))
        _assert_rows(movielens.load(data_dir=str(folder)), rows)
        with monkeypatch.context() as patch:
            patch.setattr(movielens, "_parse_ratings", None)
            _assert_rows(movielens.load(data_dir=str(folder)), rows)
