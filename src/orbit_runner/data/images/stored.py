"""Images in files, which are read when a batch needs them; does not import TensorFlow.

A dataset knows all rows of its files, and uses some of them. What depends on the format is in
subclasses beside their readers: separate files (`files.py`), TFRecord files (`data/tfrecord/`),
ArrayRecord files (`data/array_record.py`) and Arrow files (`data/hugging_face.py`).
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from orbit_runner.data.arrays import bytes_keys
from orbit_runner.data.dataset import (
    MOST_COMPARED_BYTES,
    Dataset,
    check_classes,
    joined_fields,
)
from orbit_runner.data.images.dataset import ImageDataset, Shape, Size, shape_tuple
from orbit_runner.data.images.headers import ImageHeader, ImageSurvey, image_shape, read_header
from orbit_runner.data.order.keyed_random import mix
from orbit_runner.data.places import Places
from orbit_runner.errors import DataError

# A file is read at its beginning and at its end, where images have their checksums.
_END_BYTES = 2**12
# Contents of both sections are compared up to this number of images, which takes about a second.
# Beyond it, only images that are in the same place are found.
_MOST_COMPARED = 20_000
_Images = TypeVar("_Images", bound="StoredImages")


def end_bytes(source: bytes | str) -> bytes:
    """Returns size, beginning and end of a file or of its contents, which tell images apart."""
    if isinstance(source, bytes):
        size, start, end = len(source), source[:_END_BYTES], source[_END_BYTES:][-_END_BYTES:]
    else:
        size = os.path.getsize(source)
        with open(source, "rb") as file:
            start = file.read(_END_BYTES)
            file.seek(max(len(start), size - _END_BYTES))
            end = file.read()
    return f"{size}:".encode() + start + end


def valid_header(source: bytes | str) -> ImageHeader | None:
    """Returns the header of an image file or of its contents, None if it is not valid."""
    with contextlib.suppress(ValueError):  # The pipeline will report it.
        return read_header(source)
    return None


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class StoredImages(ImageDataset):
    """Images in some rows of files.

    Attributes:
        name: The name for messages.
        files: The files that contain images.
        places: The rows of the images that are used, counted through all files.
        numbers: The class of each row, int32 [rows]; None if only the images tell.
        image_shape: Height, width and channels of the first image; 0 if they are not known.
        labels: The names of the classes.
        num_classes: The number of classes, if it is known and classes have no names.
    """

    # Whether training reads blocks of records, so that each worker reads all files.
    reads_blocks: ClassVar[bool] = False

    name: str
    files: tuple[Path, ...]
    places: Places
    numbers: np.ndarray | None = None
    image_shape: Shape = (0, 0, 0)
    labels: tuple[str, ...] | None = None
    num_classes: int | None = None
    origins: np.ndarray | None = None
    survey: ImageSurvey | None = None

    @abc.abstractmethod
    def records(self, numbers: Sequence[int]) -> Iterator[bytes]:
        """Yields what is stored for some images; raises `DataError` if one cannot be read."""

    @abc.abstractmethod
    def joined_rows(self: _Images, datasets: Sequence[_Images]) -> dict[str, Any]:
        """Returns the fields for the rows of all files of several datasets of this class.

        This is the first one. Raises `DataError` if they do not fit together.
        """

    @property
    def size(self) -> int:
        """The number of images."""
        return self.places.size

    @property
    def file_reading(self) -> str:
        """Which files a worker reads: its own, but all if it reads blocks, not single records."""
        return "all" if self.reads_blocks and self.origins is None else "own"

    @property
    def has_labels(self) -> bool:
        """Whether the classes are known without reading the images."""
        return self.numbers is not None

    def row(self, number: int) -> int:
        """Returns the row of an image."""
        return number if self.places.rows is None else int(self.places.rows[number])

    def read(self, numbers: Sequence[int]) -> list[bytes]:
        """Returns what is stored for some images."""
        return [*self.records(numbers)]

    def image(self, record: bytes) -> bytes:
        """Returns the image file in what is stored for an image."""
        return record

    def class_numbers(self) -> np.ndarray:
        """Returns the class of each image, int32 [n]."""
        return np.asarray(self.numbers)[self.places.all_rows()]

    def label(self, number: int) -> int | None:
        """Returns the class of an image, None if it has none."""
        return int(np.asarray(self.numbers)[self.row(number)])

    def known_classes(self) -> int | None:
        """Returns the number of classes, or None if only reading all images would tell."""
        return self.num_classes if self.labels is None else len(self.labels)

    def header_sources(self, numbers: Sequence[int]) -> Iterator[bytes | str]:
        """Yields image files, or their paths."""
        return map(self.image, self.records(numbers))

    def headers(self) -> Iterator[ImageHeader | None]:
        """Yields the header of each image, None if it is not valid."""
        return map(valid_header, self.header_sources(range(self.size)))

    def header_files(self) -> tuple[Sequence[str | Path], Sequence[str]]:
        """Returns the files that contain the headers, and what else decides what is read."""
        part, row = self.places.locate(np.arange(self.size))
        return self.files, (hashlib.sha256(part.tobytes() + row.tobytes()).hexdigest(),)

    def file_bytes(self) -> int:
        """Returns the size of `files`."""
        return sum(os.path.getsize(path) for path in self.files)

    def content_keys(self, labels: Sequence[str], other: Dataset) -> np.ndarray | None:
        """Returns a key of each image file; None if both datasets together have too many."""
        size = self.file_bytes() + (other.file_bytes() or 0)
        if self.size + other.size <= _MOST_COMPARED and size <= MOST_COMPARED_BYTES:
            with contextlib.suppress(DataError, OSError):  # Reported when the record is read.
                return bytes_keys(map(end_bytes, self.header_sources(range(self.size))))
        return None

    def place_keys(self) -> np.ndarray:
        """Returns a key of the place of each image, which two names of a file share: uint64 [n]."""
        files = bytes_keys(end_bytes(name) for name, _ in self.places.parts)
        part, row = self.places.locate(np.arange(self.size))
        return mix(files[part] ^ mix(row.astype(np.uint64)))

    def split_hashes(self) -> np.ndarray:
        """Returns the hash of each image that decides on its part, uint64 [n].

        By default, it is that of its number, so that appended images change no part.
        """
        return mix(np.arange(self.size, dtype=np.uint64))

    def spec(self, input_size: Size = None) -> tuple[Shape, str]:
        """Returns the shape and the dtype of the images."""
        if input_size is not None:
            return shape_tuple(input_size), "uint8"
        if not self.image_shape[0]:
            raise DataError(
                f"{self.location(0)}: the first image is corrupt, so the image size is unknown; "
                "set model.input_size",
                field="source",
                code="bad-record",
            )
        return self.image_shape, "uint8"

    def with_shape(self: _Images) -> _Images:
        """Returns the dataset with the shape of its first image."""
        shape = (0, 0, 0)
        with contextlib.suppress(ValueError):  # It is an error if images are not resized.
            shape = image_shape(next(self.header_sources([0])))
        return dataclasses.replace(self, image_shape=shape)

    def with_channels(self: _Images, channels: int) -> _Images:
        """Returns a dataset whose images are converted to some channels when they are decoded."""
        if self.image_shape[2] in (0, channels):
            return self
        return dataclasses.replace(self, image_shape=(*self.image_shape[:2], channels))

    def select(self: _Images, rows: np.ndarray) -> _Images:
        """Returns some of the images."""
        origins = None if self.origins is None else self.origins[rows]
        selected = dataclasses.replace(self, places=self.places.select(rows), origins=origins)
        return selected.with_shape()

    def join(self: _Images, datasets: Sequence[_Images]) -> _Images:
        """Returns the images of several datasets of the same class, of which this is the first."""
        for number, dataset in enumerate(datasets[1:], 1):
            check_classes(number, dataset, self)
        counts = [dataset.num_classes for dataset in datasets if dataset.num_classes is not None]
        classes = [dataset.numbers for dataset in datasets if dataset.numbers is not None]
        fields = {
            **joined_fields(datasets),
            "files": tuple(path for dataset in datasets for path in dataset.files),
            "numbers": np.concatenate(classes) if classes else None,
            "num_classes": max(counts, default=None),
            "survey": None,
        }
        return dataclasses.replace(self, **fields, **self.joined_rows(datasets))
