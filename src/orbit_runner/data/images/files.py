"""Image files, one directory per class; does not import TensorFlow, to report errors early."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from orbit_runner.data.arrays import bytes_keys
from orbit_runner.data.files import data_folder
from orbit_runner.data.fingerprint import (
    DataFile,
    content_digest,
    describe_directories,
    describe_files,
)
from orbit_runner.data.images.headers import ImageHeader
from orbit_runner.data.images.stored import StoredImages, valid_header
from orbit_runner.data.places import Places, is_same_file, place_of
from orbit_runner.data.tables.columns import KEY, Column, TablePart
from orbit_runner.data.tables.hashing import hash_texts
from orbit_runner.errors import DataError, format_choices, format_count, unknown_name_message
from orbit_runner.utils.log import Progress, note_once

SUFFIXES = (".jpg", ".jpeg", ".png")
_SPLITS = {"train": ("train",), "test": ("val", "validation", "valid", "test")}
_HINT = (
    "set data_dir to a directory with one directory per class, or with train/ and val/ that "
    "contain these"
)
_THREADS = 8
_HASHED_AT_ONCE = 2**16
# The column of all image files: the directory that they are in.
DIRECTORY = "directory"


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class FileImages(StoredImages):
    """Image files. Rows are those of the CSV file that lists them, or numbers in the directories.

    Attributes:
        paths: The image of each row, in the order of their classes, or of the CSV file.
        directories: The class directories and their numbers of images, in the order of `paths`.
        root: The directory that the names of images start in.
        listed: The table whose rows list the images, if there is one.
        files: The CSV files.
    """

    files: tuple[Path, ...] = ()
    paths: tuple[str, ...]
    directories: tuple[tuple[str, int], ...]
    root: str = ""
    listed: TablePart | None = None

    stored = "in separate files"
    graph_reader = "orbit_runner.data.images.readers:FileReader"

    def records(self, numbers: Sequence[int]) -> Iterator[bytes]:
        """Yields the contents of images."""
        return (Path(self.location(number)).read_bytes() for number in numbers)

    def data_files(self) -> list[DataFile]:
        """Returns descriptions of the CSV files and of the directories with some images."""
        rows = self.places.all_rows()
        ends = np.cumsum([count for _, count in self.directories])
        paths = np.split(np.array(self.paths, object)[rows], np.searchsorted(rows, ends[:-1]))
        images = {
            directory: of_directory.tolist()
            for (directory, _), of_directory in zip(self.directories, paths, strict=True)
            if len(of_directory)
        }
        return [*describe_files(self.files, content_digest), *describe_directories(images)]

    def joined_rows(self, datasets: Sequence[FileImages]) -> dict[str, Any]:
        """Returns the fields for the rows of several datasets."""
        return {
            "paths": tuple(path for dataset in datasets for path in dataset.paths),
            "directories": tuple(pair for dataset in datasets for pair in dataset.directories),
            "root": "",
            "listed": None,
        }

    def location(self, number: int) -> str:
        """Returns the path of an image."""
        return self.paths[self.row(number)]

    def place(self, number: int) -> dict[str, object]:
        """Returns the file of an image, and its row in a CSV file if there is one."""
        names: dict[str, object] = {"file": self.location(number)}
        if self.listed is not None:
            names["place"] = self.places.text(number)
        return names

    @property
    def id_forms(self) -> str:
        """The forms of IDs besides indices."""
        return f", or the path of an image{', or FILE:ROW' if self.listed else ''}"

    def find(self, text: str) -> Iterator[int]:
        """Yields the images that a path names, or a CSV file and a row."""
        rows = self._rows_by_name.get(text.rpartition("/")[2], ())
        named = [row for row in rows if is_same_file(self.paths[row], text)]
        numbers = map(self.places.example_of, named)
        yield from (number for number in numbers if number is not None)
        if not named and place_of(text) and self.places.unit == "row":
            yield from super().find(text)

    @functools.cached_property
    def _rows_by_name(self) -> dict[str, list[int]]:
        """The rows of the image files by their names without directories."""
        rows: dict[str, list[int]] = {}
        for row, path in enumerate(self.paths):
            rows.setdefault(path.rpartition("/")[2], []).append(row)
        return rows

    def header_sources(self, numbers: Sequence[int]) -> Iterator[bytes | str]:
        """Yields the paths of images."""
        return map(self.location, numbers)

    def headers(self) -> Iterator[ImageHeader | None]:
        """Yields the header of each image."""
        with ThreadPoolExecutor(_THREADS) as pool:
            yield from pool.map(valid_header, self.used_paths(), chunksize=64)

    def header_files(self) -> tuple[Sequence[str | Path], Sequence[str]]:
        """Returns the images."""
        return self.used_paths(), ()

    def used_paths(self) -> list[str]:
        """Returns the path of each image."""
        return [self.paths[row] for row in self.places.all_rows().tolist()]

    def place_keys(self) -> np.ndarray:
        """Returns a key of the path of each image."""
        return bytes_keys(map(os.fsencode, self.used_paths()))

    def split_hashes(self) -> np.ndarray:
        """Returns the hash of the path of each image below `root`."""
        return _hash_names(path[self._name_start :] for path in self.used_paths())

    def split_column(self, name: str, kind: str) -> Column:
        """Returns the column of the CSV file, or the directory of each image below `root`."""
        if self.listed is not None and name in self.listed.columns:
            return self.listed.columns[name].take(self.places.all_rows())
        if name != DIRECTORY:
            problem = unknown_name_message("column", name, [DIRECTORY])
            raise DataError(f"{self.name}: {problem}", code="unknown-column")
        paths = (path[self._name_start :] for path in self.used_paths())
        return Column(name, KEY, _hash_names(path.rpartition("/")[0] for path in paths))

    @property
    def _name_start(self) -> int:
        """Where the names of images start in their paths, which do not begin with `./`."""
        return 0 if self.root == "." else len(os.path.join(self.root, ""))


def _hash_names(names: Iterable[str]) -> np.ndarray:
    """Returns the hash of each name, uint64 [n]."""
    rest = iter(names)
    hashes = [np.zeros(0, np.uint64)]
    # Hashing takes 24 bytes for each byte of a name.
    while block := [*itertools.islice(rest, _HASHED_AT_ONCE)]:
        hashes.append(hash_texts(block))
    return np.concatenate(hashes)


def load(*, split: str, data_dir: str = "") -> FileImages:
    """Returns the JPEG and PNG files of a directory that contains one directory per class.

    The split `train` reads `train/`, `test` reads the first of `val/`, `validation/`, `valid/` and
    `test/`, and `all` reads both. The split is ignored if `data_dir` itself contains the class
    directories. The classes are the sorted names of the class directories of all splits.

    Raises `DataError` if a directory or its images are missing.
    """
    root = data_folder("image_folder", data_dir, _HINT)
    all_folders, folders = _split_folders(root, split)
    classes = {above: [path.name for path in _subfolders(above)] for above in all_folders}
    labels = tuple(sorted({name for names in classes.values() for name in names}))
    if not labels:
        raise DataError(
            f"image_folder: no class directories in {root}; {_HINT}", code="missing-file"
        )
    skipped: list[str] = []
    numbers = {name: number for number, name in enumerate(labels)}
    progress = Progress("looking for images")
    class_images = []
    for above in folders:
        for name in classes[above]:
            part = _list_images(above / name, skipped)
            class_images.append((numbers[name], str(above / name), part))
            progress(f"{len(class_images):,} directories")
    if skipped:
        more = f" and {len(skipped) - 3:,} more" if skipped[3:] else ""
        count = format_count(len(skipped), "file")
        note_once(
            f"note: image_folder: {count} in class directories left out, because they are no "
            f"{', '.join(SUFFIXES)} files: {', '.join(sorted(skipped)[:3])}{more}"
        )
    paths = tuple(path for *_, part in class_images for path in part)
    label = np.repeat(
        [number for number, *_ in class_images], [len(part) for *_, part in class_images]
    )
    directories = tuple((directory, len(part)) for _, directory, part in class_images)
    return FileImages(
        name="image_folder",
        places=Places(directories, kind="DIRECTORY", unit="image"),
        numbers=label.astype(np.int32),
        labels=labels,
        paths=paths,
        directories=directories,
        root=str(folders[0] if len(folders) == 1 else root),
    ).with_shape()


def _split_folders(root: Path, split: str) -> tuple[list[Path], list[Path]]:
    """Returns all directories that contain class directories, and those to read."""
    # A class may be called train, but then its directory contains images, not directories.
    split_directories = {
        kind: next((root / n for n in names if next(_subfolders(root / n), None)), None)
        for kind, names in _SPLITS.items()
    }
    all_folders = [path for path in split_directories.values() if path is not None]
    if not all_folders:
        return [root], [root]
    folders = all_folders if split == "all" else [split_directories[split]]
    if None in folders:
        raise DataError(
            f"image_folder: no directory {format_choices(_SPLITS[split])} with class directories "
            f"in {root}",
            code="missing-file",
        )
    return all_folders, [path for path in folders if path is not None]


def _subfolders(directory: Path) -> Iterator[Path]:
    if not directory.is_dir():
        return
    with _scan_scope(directory) as entries:
        names = sorted(e.name for e in entries if e.is_dir() and not e.name.startswith("."))
    yield from (directory / name for name in names)


@contextlib.contextmanager
def _scan_scope(directory: str | Path) -> Iterator[Iterator[os.DirEntry[str]]]:
    try:
        with os.scandir(directory) as entries:
            yield entries
    except OSError as error:
        raise DataError(
            f"image_folder: {directory}: cannot be read ({error.strerror})", code="unreadable-file"
        ) from None


def _list_images(directory: Path, skipped: list[str]) -> list[str]:
    """Returns the sorted images below a class directory, at any depth.

    Adds what is skipped to `skipped`. Raises `DataError` if there is no image.
    """
    paths: list[str] = []
    rest = [str(directory)]
    while rest:
        with _scan_scope(rest.pop()) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir():
                    # A link may point to one of its parent directories.
                    (skipped if entry.is_symlink() else rest).append(entry.path)
                elif not entry.name.lower().endswith(SUFFIXES):
                    skipped.append(entry.path)
                elif entry.is_file():
                    paths.append(entry.path)
                else:
                    raise DataError(
                        f"image_folder: {entry.path}: is not a file", code="wrong-file-type"
                    )
    if not paths:
        raise DataError(
            f"image_folder: no {', '.join(SUFFIXES)} files in {directory}", code="empty-data"
        )
    return sorted(paths)


def format_others(count: int) -> str:
    """Returns how many rows there are besides the one that a message names."""
    more = count - 1
    return f" (and {format_count(more, 'other row')})" if more else ""
