"""Class directories: which files are found, with which labels, and errors."""

import os
from pathlib import Path

import pytest

from orbit_runner.data.images.files import load
from orbit_runner.utils import log
from tests.support.images import GARBAGE, jpeg, write_folder
from tests.support.problems import raises


@pytest.fixture
def folder(tmp_path):
    write_folder(tmp_path / "train", {"cat": 4, "ant": 3, "bee": 2})
    # No bee here: the labels of the other classes must not shift.
    write_folder(tmp_path / "val", {"cat": 2, "ant": 1}, first=50)
    (tmp_path / "train" / "cat" / "notes.txt").write_text("no image")
    (tmp_path / "train" / "cat" / ".hidden.jpg").write_bytes(b"")
    (tmp_path / "train" / ".git").mkdir()
    return tmp_path


def test_classes_are_sorted_and_files_are_found_at_any_depth(folder):
    source = load(split="train", data_dir=str(folder))
    assert source.labels == ("ant", "bee", "cat")
    assert source.class_numbers().tolist() == [0] * 3 + [1] * 2 + [2] * 4
    assert source.size == 9
    names = [Path(path).name for path in source.paths[:3]]
    assert names == ["0004.jpg", "0006.png", "0005.JPEG"]
    assert source.image_shape[2] == 3


@pytest.mark.parametrize("name", ["val", "validation", "valid", "test"])
def test_evaluation_split_uses_the_training_labels(folder, name):
    (folder / "val").rename(folder / name)
    source = load(split="test", data_dir=str(folder))
    assert source.labels == ("ant", "bee", "cat")
    assert source.class_numbers().tolist() == [0, 2, 2]
    assert load(split="all", data_dir=str(folder)).size == 12


def test_directory_without_splits_serves_as_every_split(folder):
    for split in ("train", "test", "all"):
        assert load(split=split, data_dir=str(folder / "train")).size == 9


def test_class_directory_may_be_called_train(tmp_path):
    write_folder(tmp_path, {"train": 1, "boat": 1})
    source = load(split="train", data_dir=str(tmp_path))
    assert source.labels == ("boat", "train")


def test_invalid_settings_or_directories_are_rejected(folder, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    cases = [
        ({"data_dir": ""}, "data_dir", "not-set"),
        ({"data_dir": str(tmp_path / "none")}, "data_dir", "missing-file"),
        ({"data_dir": str(empty)}, "data_dir", "missing-file"),
    ]
    for settings, field, code in cases:
        with raises(code) as caught:
            load(**{"split": "train", **settings})
        assert caught.value.field == field
    (folder / "val" / "dog").mkdir()
    with raises("empty-data"):
        load(split="test", data_dir=str(folder))
    only = tmp_path / "only"
    write_folder(only / "train", {"ant": 1})
    with raises("missing-file"):
        load(split="test", data_dir=str(only))


def test_corrupt_first_image_leaves_the_image_size_unknown(tmp_path):
    place = tmp_path / "ant"
    place.mkdir()
    for content in GARBAGE.values():
        (place / "0.jpg").write_bytes(content)
        (place / "1.jpg").write_bytes(jpeg(1))
        assert load(split="train", data_dir=str(tmp_path)).image_shape == (0, 0, 0)


@pytest.mark.parametrize(
    ("make", "skipped"),
    [
        (lambda at: (at / "cat" / "1.webp").touch(), "cat/1.webp"),
        (lambda at: (at / "cat" / "loop").symlink_to(at), "cat/loop"),
        (lambda at: (at / "cat" / ".DS_Store").touch(), ""),
    ],
)
def test_what_is_skipped_is_named_in_one_note(make, skipped, tmp_path, capsys):
    log.note_once.cache_clear()
    write_folder(tmp_path / "train", {"cat": 1, "ant": 1})
    make(tmp_path / "train")
    for _ in range(2):
        load(split="train", data_dir=str(tmp_path))
    stderr = capsys.readouterr().err
    assert stderr.count("\n") == bool(skipped)
    assert f"{tmp_path}/train/{skipped}\n" in stderr or not skipped


@pytest.mark.parametrize(
    "make", [lambda path: path.symlink_to("no"), os.mkfifo], ids=["a broken link", "a pipe"]
)
def test_file_that_cannot_be_read_is_rejected(make, tmp_path):
    write_folder(tmp_path, {"cat": 1, "ant": 1})
    make(tmp_path / "cat" / "1.png")
    with raises("wrong-file-type"):
        load(split="train", data_dir=str(tmp_path))


def test_unreadable_directory_is_rejected(tmp_path, monkeypatch):
    write_folder(tmp_path, {"cat": 1, "locked": 1})
    # The superuser can read everything, so the error is simulated.
    scandir = os.scandir

    def refuse(path):
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with raises("unreadable-file"):
        load(split="train", data_dir=str(tmp_path))


def test_file_name_that_is_not_utf8_is_accepted(tmp_path):
    write_folder(tmp_path, {"cat": 1, "ant": 1})
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/cat/caf\xe9.png")
    Path(odd).write_bytes(b"no image")
    assert odd in load(split="train", data_dir=str(tmp_path)).paths
