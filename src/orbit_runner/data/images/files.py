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

import numpy as np

from orbit_runner.data.dataset import Place, Reader
from orbit_runner.data.example_ids import is_same_file, place_of
from orbit_runner.data.files import check_split, data_folder, refuse_paths
from orbit_runner.data.fingerprint import (
    DataFile,
    content_digest,
    describe_directories,
    describe_files,
)
from orbit_runner.data.images.dataset import ImageDataset, joined_fields, place_arguments
from orbit_runner.data.images.headers import ImageHeader, ImageSurvey, image_shape, read_header
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


@dataclasses.dataclass(frozen=True, eq=False)
class FileSource(ImageDataset):
    """An image dataset that is read from its files."""

    name: str
    paths: tuple[str, ...]  # In the order of their classes, or of the CSV file that lists them.
    label: np.ndarray  # Class number of each file, int32 [n].
    labels: tuple[str, ...]  # Class names.
    image_shape: tuple[int, int, int]  # Height, width, channels of the first image; 0 if unknown.
    root: str = ""  # The directory that the names of images start in.
    # Class directories and their numbers of images, in the order of `paths`.
    directories: tuple[tuple[str, int], ...] = ()
    # The rows of a CSV file that list the images, if there is one, and the CSV files.
    listed: TablePart | None = None
    label_files: tuple[Path, ...] = ()
    # The source of a mixture that each image comes from, integers [n]; None if there is only one.
    origins: np.ndarray | None = None
    survey: ImageSurvey | None = None  # See `add_survey`.

    stored = "in separate files"
    graph_reader = "orbit_runner.data.images.readers:FileReader"

    @property
    def size(self) -> int:
        """The number of images."""
        return len(self.paths)

    @property
    def id_forms(self) -> str:  # type: ignore[override]
        """The forms of IDs besides indices."""
        return f", or the path of an image{', or FILE:ROW' if self.listed else ''}"

    def data_files(self) -> list[DataFile]:
        """Returns descriptions of the CSV files and of the class directories."""
        ends = np.cumsum([count for _, count in self.directories]).tolist()
        places = {
            directory: self.paths[end - count : end]
            for (directory, count), end in zip(self.directories, ends, strict=True)
        }
        return [
            *describe_files(self.label_files, content_digest),
            *describe_directories(places),
        ]

    def place(self, number: int) -> Place:
        """Returns the file of an image, and its row in a CSV file if there is one."""
        path = self.paths[number]
        names: dict[str, object] = {"file": path}
        if self.listed is not None:
            names["place"] = self.listed.row_location(number)
        return Place(names, int(self.label[number]))

    def find(self, text: str) -> Iterator[int]:
        """Yields the images that a path names, or a CSV file and a row."""
        numbers = self._numbers_by_name.get(text.rpartition("/")[2], ())
        yield from (number for number in numbers if is_same_file(self.paths[number], text))
        if self.listed is not None and place_of(text) is not None and not numbers:
            yield from self.listed.find(text)

    @functools.cached_property
    def _numbers_by_name(self) -> dict[str, list[int]]:
        """The numbers of the image files by their names without directories."""
        numbers: dict[str, list[int]] = {}
        for number, path in enumerate(self.paths):
            numbers.setdefault(path.rpartition("/")[2], []).append(number)
        return numbers

    def join(self, datasets: Sequence[FileSource]) -> FileSource:
        """Returns the image files of several datasets."""
        return FileSource(
            **joined_fields(datasets),
            paths=tuple(path for dataset in datasets for path in dataset.paths),
            label=np.concatenate([dataset.label for dataset in datasets]),
            directories=tuple(pair for dataset in datasets for pair in dataset.directories),
            label_files=tuple(path for dataset in datasets for path in dataset.label_files),
        )

    def class_numbers(self) -> np.ndarray:
        """Returns the class of each image."""
        return self.label

    def select(self, rows: np.ndarray) -> FileSource:
        """Returns some of the images, as if the other files did not exist."""
        paths = tuple(self.paths[number] for number in rows.tolist())
        return dataclasses.replace(
            self,
            paths=paths,
            label=self.label[rows],
            image_shape=first_image_shape(paths[0]),
            directories=_remaining_directories(self, rows),
            listed=None if self.listed is None else self.listed.select(rows),
        )

    def split_hashes(self) -> np.ndarray:
        """Returns the hash of the path of each image below `root`."""
        return _hash_names(path[self._name_start :] for path in self.paths)

    def split_column(self, name: str, kind: str) -> Column:
        """Returns the column of the CSV file, or the directory of each image below `root`."""
        if self.listed is not None and name in self.listed.source.columns:
            return self.listed.column(name)
        if name != DIRECTORY:
            raise DataError(
                f"{self.name}: {unknown_name_message('column', name, [DIRECTORY])}",
                code="unknown-column",
            )
        names = (path[self._name_start :].rpartition("/")[0] for path in self.paths)
        return Column(name, KEY, _hash_names(names))

    @property
    def _name_start(self) -> int:
        """Where the names of images start in their paths, which do not begin with `./`."""
        return 0 if self.root == "." else len(os.path.join(self.root, ""))

    def headers(self) -> Iterator[ImageHeader | None]:
        """Yields the header of each image."""
        with ThreadPoolExecutor(_THREADS) as pool:
            yield from pool.map(_file_header, self.paths, chunksize=64)

    def header_files(self) -> tuple[Sequence[str | Path], Sequence[str]]:
        """Returns the images."""
        return self.paths, ()

    def example_name(self, number: int) -> str:
        """Returns the path of an image."""
        return self.paths[number]


def _hash_names(names: Iterable[str]) -> np.ndarray:
    """Returns the hash of each name, uint64 [n]."""
    rest = iter(names)
    hashes = [np.zeros(0, np.uint64)]
    # Hashing takes 24 bytes for each byte of a name.
    while block := [*itertools.islice(rest, _HASHED_AT_ONCE)]:
        hashes.append(hash_texts(block))
    return np.concatenate(hashes)


def _remaining_directories(source: FileSource, kept: np.ndarray) -> tuple[tuple[str, int], ...]:
    """Returns the directories that have images left, and their numbers of images."""
    ends = np.cumsum([count for _, count in source.directories])
    counts = np.diff(np.searchsorted(kept, ends), prepend=0).tolist()
    pairs = zip(source.directories, counts, strict=True)
    return tuple((name, count) for (name, _), count in pairs if count)


def load(*, split: str, data_dir: str = "", input_path: Sequence[str] = ()) -> FileSource:
    """Returns the JPEG and PNG files of a directory that contains one directory per class.

    The split `train` reads `train/`, `test` reads the first of `val/`, `validation/`, `valid/` and
    `test/`, and `all` reads both. The split is ignored if `data_dir` itself contains the class
    directories. The classes are the sorted names of the class directories of all splits.

    Raises `DataError` if `input_path` is not empty, or if a directory or its images are missing.
    """
    check_split("image_folder", split)
    refuse_paths("image_folder", _HINT, input_path=input_path)
    root = data_folder("image_folder", data_dir, _HINT)
    every, chosen = _split_folders(root, split)
    classes = {above: [path.name for path in _subfolders(above)] for above in every}
    labels = tuple(sorted({name for names in classes.values() for name in names}))
    if not labels:
        raise DataError(
            f"image_folder: no class directories in {root}; {_HINT}", code="missing-file"
        )
    skipped: list[str] = []
    numbers = {name: number for number, name in enumerate(labels)}
    progress = Progress("looking for images")
    class_images = []
    for above in chosen:
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
    return FileSource(
        "image_folder",
        paths,
        label.astype(np.int32),
        labels,
        first_image_shape(paths[0]),
        root=str(chosen[0] if len(chosen) == 1 else root),
        directories=tuple((directory, len(part)) for _, directory, part in class_images),
    )


def _split_folders(root: Path, split: str) -> tuple[list[Path], list[Path]]:
    """Returns all directories that contain class directories, and those to read."""
    # A class may be called train, but then its directory contains images, not directories.
    split_directories = {
        kind: next((root / n for n in names if next(_subfolders(root / n), None)), None)
        for kind, names in _SPLITS.items()
    }
    every = [path for path in split_directories.values() if path is not None]
    if not every:
        return [root], [root]
    wanted = every if split == "all" else [split_directories[split]]
    if None in wanted:
        raise DataError(
            f"image_folder: no directory {format_choices(_SPLITS[split])} with class directories "
            f"in {root}",
            code="missing-file",
        )
    return every, [path for path in wanted if path is not None]


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
                    kind = "a broken link" if entry.is_symlink() else "not a regular file"
                    raise DataError(
                        f"image_folder: {entry.path}: is {kind}", code="wrong-file-type"
                    )
    if not paths:
        raise DataError(
            f"image_folder: no {', '.join(SUFFIXES)} files in {directory}", code="empty-data"
        )
    return sorted(paths)


def first_image_shape(path: str) -> tuple[int, int, int]:
    """Returns height, width and channels in the header of an image file; 0, 0, 0 if unknown."""
    try:
        return image_shape(path)
    except ValueError:  # Decoding will report an error.
        return (0, 0, 0)


def _file_header(path: str) -> ImageHeader | None:
    with contextlib.suppress(ValueError):  # The pipeline will report it.
        return read_header(path)
    return None


def format_others(count: int) -> str:
    """Returns how many rows there are besides the one that a message names."""
    more = count - 1
    return f" (and {format_count(more, 'other row')})" if more else ""


IMAGES = Reader(load, place_arguments)
