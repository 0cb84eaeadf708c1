"""Class directories that are probably a mistake are reported in a note or rejected."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from orbit_runner.data.images.files import load
from orbit_runner.utils import log
from tests.support.problems import raises

Load = Callable[..., str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """`train/` and `val/` with the classes cat and dog."""
    for split in ("train", "val"):
        for name in ("cat", "dog"):
            (tmp_path / split / name).mkdir(parents=True)
            (tmp_path / split / name / "0.png").write_bytes(b"no image")
    return tmp_path


@pytest.fixture
def loaded(folder: Path, capsys: pytest.CaptureFixture[str]) -> Load:
    """Loads a split and returns the notes."""

    def loaded(split: str = "train") -> str:
        log.note_once.cache_clear()
        load(split=split, data_dir=str(folder))
        return capsys.readouterr().err

    return loaded


def _image(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"no image")


def test_valid_dataset_prints_no_note(loaded: Load, folder: Path) -> None:
    _image(folder / "train/cat/deeper/still/1.JPG")
    (folder / "train/cat/.DS_Store").touch()
    assert loaded() == ""
    assert loaded("test") == ""


@pytest.mark.parametrize(
    ("make", "note"),
    [
        (lambda at: _image(at / "val/bird/1.png"),
         "{at}/train lacks class directories of another split: bird"),
        (lambda at: _image(at / "train/bird/1.png"),
         "{at}/val lacks class directories of another split: bird"),
        (lambda at: _image(at / "train/cat/1.webp"),
         "skipped files that are not .jpg, .jpeg, .png: {at}/train/cat/1.webp"),
        (lambda at: _image(at / "train/1.png"),
         "skipped images outside class directories: {at}/train/1.png"),
        (lambda at: (at / "train/cat/loop").symlink_to(at / "train"),
         "skipped links to directories: {at}/train/cat/loop"),
    ],
)  # fmt: skip
def test_likely_mistake_is_reported_in_a_note(
    make: Callable[[Path], None], note: str, loaded: Load, folder: Path
) -> None:
    make(folder)
    assert f"note: image_folder: {note.format(at=folder)}" in loaded()


def test_same_note_from_both_sections_is_printed_once(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log.note_once.cache_clear()
    _image(folder / "val/bird/1.png")
    for split in ("train", "test"):
        load(split=split, data_dir=str(folder))
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda at: (at / "train/bird").mkdir(), "empty-data"),
        (lambda at: (at / "train/cat/1.png").symlink_to(at / "no"), "wrong-file-type"),
        (lambda at: os.mkfifo(at / "train/cat/1.png"), "wrong-file-type"),
        (lambda at: _image(at / os.fsdecode(b"train/caf\xe9/1.png")), "bad-path"),
    ],
    ids=["empty", "link", "pipe", "name"],
)  # fmt: skip
def test_unusable_class_directory_or_file_is_rejected(
    make: Callable[[Path], None], code: str, folder: Path
) -> None:
    make(folder)
    with raises(code):
        load(split="train", data_dir=str(folder))


def test_unreadable_directory_is_rejected(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "train/cat/locked").mkdir()
    # The superuser can read everything, so the error is simulated.
    scandir = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with raises("unreadable-file"):
        load(split="train", data_dir=str(folder))


def test_file_name_that_is_not_utf8_is_accepted(folder: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(folder) + b"/train/cat/caf\xe9.png"))
    _image(odd)
    assert str(odd) in load(split="train", data_dir=str(folder)).paths
