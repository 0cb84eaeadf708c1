"""Class directories that are probably a mistake: named in a note, or refused."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from orbit_runner.data.images import files
from orbit_runner.data.images.files import load
from orbit_runner.errors import DataError

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
        files._note.cache_clear()
        load(split=split, data_dir=str(folder))
        return capsys.readouterr().err

    return loaded


def _image(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"no image")


def test_nothing_is_noted_of_a_dataset_that_is_as_it_should_be(loaded: Load, folder: Path) -> None:
    _image(folder / "train/cat/deeper/still/1.JPG")
    (folder / "train/cat/.DS_Store").touch()
    assert loaded() == ""
    assert loaded("test") == ""


@pytest.mark.parametrize(
    ("make", "note"),
    [
        (lambda at: _image(at / "val/bird/1.png"), "{at}/train has no class folder bird, which an"),
        (lambda at: _image(at / "train/bird/1.png"), "{at}/val has no class folder bird, which an"),
        (lambda at: _image(at / "train/Cat/1.png"),
         "the class folders Cat, cat differ in upper and lower case only"),
        (lambda at: _image(at / "train/cat/1.webp"),
         "files that are not .jpg, .jpeg, .png are left out: {at}/train/cat/1.webp"),
        (lambda at: _image(at / "train/1.png"),
         "images outside of class folders are left out: {at}/train/1.png"),
        (lambda at: (at / "train/cat/loop").symlink_to(at / "train"),
         "links to directories are not followed: {at}/train/cat/loop"),
    ],
)  # fmt: skip
def test_a_note_names_what_is_probably_a_mistake(
    make: Callable[[Path], None], note: str, loaded: Load, folder: Path
) -> None:
    make(folder)
    assert f"note: image_folder: {note.format(at=folder)}" in loaded()


def test_both_sections_note_the_same_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files._note.cache_clear()
    _image(folder / "val/bird/1.png")
    for split in ("train", "test"):
        load(split=split, data_dir=str(folder))
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda at: (at / "train/bird").mkdir(), r"no \.jpg, \.jpeg, \.png file in .*train/bird"),
        (lambda at: (at / "train/cat/1.png").symlink_to(at / "no"), "1.png: is a link to nothing"),
        (lambda at: os.mkfifo(at / "train/cat/1.png"), "1.png: is no regular file"),
        (lambda at: _image(Path(os.fsdecode(os.fsencode(at) + b"/train/caf\xe9/1.png"))),
         "has to be UTF-8"),
    ],
    ids=["empty", "link", "pipe", "name"],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(
    make: Callable[[Path], None], message: str, folder: Path
) -> None:
    make(folder)
    with pytest.raises(DataError, match=message):
        load(split="train", data_dir=str(folder))


def test_a_directory_that_cannot_be_read_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "train/cat/locked").mkdir()
    # The superuser reads everything, so the system has to be told to refuse.
    scandir = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(DataError, match=r"locked: cannot be read .Permission denied"):
        load(split="train", data_dir=str(folder))


def test_names_of_files_need_not_be_utf8(folder: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(folder) + b"/train/cat/caf\xe9.png"))
    _image(odd)
    assert str(odd) in load(split="train", data_dir=str(folder)).paths
