"""MovieLens files: what is read, where it is found, and the errors for malformed lines."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

from orbit_runner.data import disk_cache
from orbit_runner.datasets import movielens
from orbit_runner.errors import DataError
from tests.support.problems import raises

ROWS = [(196, 242, 3, 881250949), (186, 302, 4, 891717742), (1, 3952, 5, 874965758)]
NAMES = {"100k": "u.data", "1m": "ratings.dat", "20m": "ratings.csv"}


def _text(variant: str, rows=ROWS) -> str:
    if variant == "20m":
        lines = [f"{user},{item},{rating - 0.5},{time}" for user, item, rating, time in rows]
        return "\n".join(["userId,movieId,rating,timestamp", *lines]) + "\n"
    separator = {"100k": "\t", "1m": "::"}[variant]
    return "".join(separator.join(map(str, row)) + "\n" for row in rows)


def _write(folder: pathlib.Path, variant: str, text: str | None = None) -> pathlib.Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / NAMES[variant]
    path.write_bytes((_text(variant) if text is None else text).encode())
    return path


def _assert_rows(found, rows=ROWS):
    expected = np.array(rows)
    np.testing.assert_array_equal(found.users, expected[:, 0])
    np.testing.assert_array_equal(found.items, expected[:, 1])
    np.testing.assert_array_equal(found.times, expected[:, 3])


@pytest.mark.parametrize("variant", NAMES)
@pytest.mark.parametrize("below", [False, True])
@pytest.mark.parametrize("said", [False, True])
def test_each_variant_is_read_in_file_order(tmp_path, variant, below, said):
    _write(tmp_path / f"ml-{variant}" if below else tmp_path, variant)
    found = movielens.load(data_dir=str(tmp_path), variant=variant if said else "")
    assert found.name == f"movielens {variant}"
    _assert_rows(found)


@pytest.mark.parametrize("variant", NAMES)
def test_crlf_and_missing_final_newline_are_accepted(tmp_path, variant):
    _write(tmp_path, variant, _text(variant).replace("\n", "\r\n")[:-2])
    _assert_rows(movielens.load(data_dir=str(tmp_path)))


@pytest.mark.sample(1)
@pytest.mark.parametrize("variant", NAMES)
def test_chunk_size_does_not_change_the_parsed_rows(tmp_path, variant, monkeypatch):
    generator = np.random.default_rng(3)
    rows = [
        (int(generator.integers(1, 1000)), int(generator.integers(1, 10**6)), 5, 10**9 + n)
        for n in range(500)
    ]
    _write(tmp_path, variant, _text(variant, rows))
    for size in (1, 7, 64, 4096):
        monkeypatch.setattr(movielens, "_CHUNK_BYTES", size)
        _assert_rows(movielens.load(data_dir=str(tmp_path)), rows)


def test_input_path_selects_the_ratings_file(tmp_path):
    path = _write(tmp_path, "1m")
    _assert_rows(movielens.load(input_path=(str(path),)))
    other = path.rename(tmp_path / "mine.txt")
    _assert_rows(movielens.load(data_dir=str(tmp_path), input_path=(other.name,), variant="1m"))
    with raises("not-set") as caught:
        movielens.load(input_path=(str(other),))
    assert caught.value.field == "variant"


BAD = [
    ("100k", "1\t2\t3"),
    ("100k", "1\t2\t3\t4\t5"),
    ("100k", "1 2 3 4"),
    ("100k", ""),
    ("100k", "1\tx2\t3\t4"),
    ("100k", "-1\t2\t3\t4"),
    ("100k", "1\t\t3\t4"),
    ("100k", "1\t2\t.\t4"),
    ("100k", "1\t2\tfive\t4"),
    ("100k", "1\t2\t3\t1234567890123456789"),
    ("100k", "1\t2\t3\t４"),
    ("100k", "0x1F\t2\t3\t4"),
    ("100k", "1\t 2\t3\t4"),
    ("100k", "1\t2\tNaN\t4"),
    ("100k", "1\t2\t-1\t4"),
    ("1m", "1:2::3::4"),
    ("1m", "1::2::3:4"),
    ("1m", "1:::2::3::4"),
    ("1m", "1:2:3:4:5:6:7"),
    ("1m", "1::2::3::4::5"),
    ("20m", "1,2,3.5"),
    ("20m", "1,2,3.5.x,4"),
    ("20m", "1.0,2,3.5,4"),
    ("20m", "userId,movieId,rating,timestamp"),
]


@pytest.mark.parametrize(("variant", "line"), BAD)
@pytest.mark.parametrize("chunk_bytes", [1, 2**20])
def test_malformed_line_is_reported_with_its_number(
    tmp_path, variant, line, chunk_bytes, monkeypatch
):
    monkeypatch.setattr(movielens, "_CHUNK_BYTES", chunk_bytes)
    lines = _text(variant).splitlines()
    path = _write(tmp_path, variant, "\n".join([*lines, line, lines[-1]]) + "\n")
    with pytest.raises(DataError) as caught:
        movielens.load(data_dir=str(tmp_path))
    message = str(caught.value)
    place = f"{path}:{len(lines) + 1}"
    assert message.startswith(f"{place}: got {line!r}, expected four numbers separated by ")
    assert message.endswith(": user, item, rating, time")
    assert caught.value.field == "data_dir"


def test_truncated_last_line_is_reported_with_its_number(tmp_path):
    _write(tmp_path, "1m", _text("1m")[:-12])
    with raises("bad-record"):
        movielens.load(data_dir=str(tmp_path))


def test_long_line_is_truncated_in_the_error(tmp_path):
    _write(tmp_path, "100k", "x" * 10_000)
    with pytest.raises(DataError) as caught:
        movielens.load(data_dir=str(tmp_path))
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("variant", "text", "code"),
    [
        ("100k", "", "empty-data"),
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
    _write(tmp_path, "100k")
    with raises("missing-file"):
        movielens.load(data_dir=str(tmp_path), variant="1m")


def test_two_variants_in_one_directory_require_variant(tmp_path):
    _write(tmp_path, "100k")
    _write(tmp_path / "ml-20m", "20m")
    with raises("not-set") as caught:
        movielens.load(data_dir=str(tmp_path))
    assert caught.value.field == "variant"
    _assert_rows(movielens.load(data_dir=str(tmp_path), variant="20m"))


@pytest.fixture
def kept(own_cache: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.usefixtures("kept")
def test_cache_entry_of_another_variant_is_not_used(tmp_path):
    path = _write(tmp_path, "100k")
    movielens.load(input_path=(str(path),))
    with raises("bad-record"):
        movielens.load(input_path=(str(path),), variant="1m")
