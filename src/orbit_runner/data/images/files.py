"""Images in files of their own, one folder a class; numpy only, to tell a missing folder early."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from orbit_runner.data.files import check_split, data_folder
from orbit_runner.data.tfrecord.example import image_shape
from orbit_runner.errors import DataError

SUFFIXES = (".jpg", ".jpeg", ".png")
_SPLITS = {"train": ("train",), "test": ("val", "validation", "valid", "test")}
_HINT = "set data_dir to a folder of class folders, or of train/ and val/ with such folders"
_HEAD_BYTES = 2**16
_PATIENCE_SECONDS = 2.0


@dataclasses.dataclass(frozen=True, eq=False)
class FileSource:
    """A set of images that stay in their files.

    Attributes:
        name: What messages call it.
        paths: The files, in the order of their classes.
        label: Number of the class of each, int32 [n].
        labels: What the classes are called, by their numbers.
        image_shape: Height, width and channels of the first image.
        mean: What to subtract from each channel; with `std` it maps bytes to -1 to 1.
        std: What to divide each channel by.
    """

    name: str
    paths: tuple[str, ...]
    label: np.ndarray
    labels: tuple[str, ...]
    image_shape: tuple[int, int, int]
    mean: tuple[float, ...] = (127.5,)
    std: tuple[float, ...] = (127.5,)

    @property
    def size(self) -> int:
        """The number of images."""
        return len(self.paths)


def load(*, split: str, data_dir: str = "", input_path: Sequence[str] = ()) -> FileSource:
    """Finds the JPEG and PNG files of a folder of class folders.

    Args:
        split: `train` reads the folder `train/`, `test` the first of `val/`, `validation/`,
            `valid/` and `test/`, `all` both; of no effect where data_dir has the class folders
            itself.
        data_dir: The folder.
        input_path: Must be empty.

    Returns:
        The images. Classes are the folders' names, sorted, those of all splits together.

    Raises:
        DataError: There is no such folder, or no image in one.
    """
    check_split("image_folder", split)
    if input_path:
        raise DataError(
            f"image_folder: got input_path {list(input_path)}, expected none; {_HINT}",
            field="input_path",
        )
    folder = data_folder("image_folder", data_dir, _HINT)
    every, chosen = _split_folders(folder, split)
    labels = tuple(sorted({path.name for above in every for path in _subfolders(above)}))
    if not labels:
        raise DataError(f"image_folder: no class folder in {folder}; {_HINT}")
    numbers = {name: number for number, name in enumerate(labels)}
    found: list[tuple[int, list[str]]] = []
    told = time.monotonic()
    for above in chosen:
        for path in _subfolders(above):
            found.append((numbers[path.name], _images(path)))
            if time.monotonic() - told > _PATIENCE_SECONDS:
                told = time.monotonic()
                print(f"looking for images: {len(found):,} folders", file=sys.stderr)
    paths = tuple(path for _, part in found for path in part)
    label = np.repeat([number for number, _ in found], [len(part) for _, part in found])
    return FileSource("image_folder", paths, label.astype(np.int32), labels, _first_shape(paths[0]))


def _split_folders(folder: Path, split: str) -> tuple[list[Path], list[Path]]:
    """Returns the folders of class folders, and those among them that are wanted."""
    # A class may be called train, but then its folder has images, not folders.
    found = {
        kind: next((folder / n for n in names if next(_subfolders(folder / n), None)), None)
        for kind, names in _SPLITS.items()
    }
    every = [path for path in found.values() if path is not None]
    if not every:
        return [folder], [folder]
    wanted = every if split == "all" else [found[split]]
    if None in wanted:
        raise DataError(
            f"image_folder: no folder {' or '.join(_SPLITS[split])} with class folders in {folder}"
        )
    return every, [path for path in wanted if path is not None]


def _subfolders(folder: Path) -> Iterator[Path]:
    if not folder.is_dir():
        return
    with os.scandir(folder) as entries:
        names = sorted(e.name for e in entries if e.is_dir() and not e.name.startswith("."))
    yield from (folder / name for name in names)


def _images(folder: Path) -> list[str]:
    """Returns the images below a class folder, however deep."""
    found = [
        os.path.join(above, name)
        for above, _, names in os.walk(folder)
        for name in names
        if name.lower().endswith(SUFFIXES) and not name.startswith(".")
    ]
    if not found:
        raise DataError(f"image_folder: no {', '.join(SUFFIXES)} file in {folder}")
    return sorted(found)


def _first_shape(path: str) -> tuple[int, int, int]:
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error})") from None
    try:
        return image_shape(head)
    except ValueError:
        # Mangled, or a head with a large picture in it: what it is shows when it is decoded.
        return (0, 0, 0)
