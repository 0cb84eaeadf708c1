"""Images in files, which are read when a batch needs them; does not import TensorFlow.

A store knows all images of its files by their rows. A dataset is some rows of a store, their
classes, and where they come from: `select` and `join` are written here, once for all stores. Stores
are beside their readers: separate files (`files.py`), TFRecord files (`data/tfrecord/`),
ArrayRecord files (`data/array_record/`) and Arrow files (`data/hugging_face.py`).
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

import numpy as np

from orbit_runner.data.arrays import bytes_keys
from orbit_runner.data.dataset import check_classes, joined_fields
from orbit_runner.data.fingerprint import DataFile
from orbit_runner.data.images.dataset import ImageDataset, Shape, Size, shape_tuple
from orbit_runner.data.images.headers import ImageHeader, ImageSurvey, image_shape, read_header
from orbit_runner.data.order.epochs import EpochOrder, ShuffledOrder
from orbit_runner.data.order.keyed_random import mix
from orbit_runner.data.places import Places, place_of
from orbit_runner.data.tables.columns import Column
from orbit_runner.errors import DataError

# A file is read at its beginning and at its end, where images have their checksums.
_END_BYTES = 2**12
_Store = TypeVar("_Store", bound="ImageStore")
Store = TypeVar("Store", bound="ImageStore", covariant=True)


class ImageStore(abc.ABC):
    """The images of some files by their rows, counted through all files.

    Attributes:
        files: The files that contain images.
        places: The rows of the files.
    """

    stored: ClassVar[str]  # Where the images are, for messages.
    graph_reader: ClassVar[str]  # The class that reads the images in a graph, `module:Class`.
    # Whether training reads blocks of records, so that each worker reads all files.
    reads_blocks: ClassVar[bool] = False

    # Whether the classes are known without reading the images.
    has_labels: ClassVar[bool] = True

    files: tuple[Path, ...]
    places: Places

    @abc.abstractmethod
    def read(self, rows: Sequence[int]) -> Iterator[bytes]:
        """Yields what is stored in some rows; raises `DataError` if one cannot be read."""

    @abc.abstractmethod
    def data_files(self, rows: np.ndarray) -> list[DataFile]:
        """Returns descriptions of the files with some rows, int64 [n]."""

    @abc.abstractmethod
    def join(self: _Store, stores: Sequence[_Store]) -> _Store:
        """Returns the rows of several stores of this class, of which this one is the first.

        Raises `DataError` if they do not fit together.
        """

    def image(self, stored: bytes) -> bytes:
        """Returns the image file in what is stored in a row."""
        return stored

    def name(self, row: int) -> str:
        """Returns the name of an image, such as `train-00: record 3`."""
        return self.places.text(row)

    def place(self, row: int) -> dict[str, object]:
        """Returns where an image is stored: file, record and the like by name."""
        return {"place": self.places.text(row)}

    @property
    def id_forms(self) -> str:
        """The forms of IDs besides indices, for messages."""
        return f", or {self.places.id_form}"

    def rows_of_file(self, path: str) -> Sequence[int] | None:
        """Returns the rows that a path names; None if images are not separate files."""
        return None

    @abc.abstractmethod
    def labels(self, rows: np.ndarray) -> np.ndarray:
        """Returns the classes of some rows, int32 [n]; reads these rows unless `has_labels`.

        Raises `DataError` if a row has none.
        """

    def label(self, row: int) -> int | None:
        """Returns the class of a row, None if it has none."""
        return int(self.labels(np.array([row]))[0])

    def header_sources(self, rows: Sequence[int]) -> Iterator[bytes | str]:
        """Yields image files, or their paths."""
        return map(self.image, self.read(rows))

    def headers(self, rows: Sequence[int]) -> Iterator[ImageHeader | None]:
        """Yields the header of each image, None if it is not valid."""
        return map(valid_header, self.header_sources(rows))

    def shape(self, row: int) -> Shape:
        """Returns height, width and channels of an image; 0 if they are not known."""
        with contextlib.suppress(ValueError):  # It is an error if images are not resized.
            return image_shape(next(self.header_sources([row])))
        return 0, 0, 0

    def header_files(self, rows: np.ndarray) -> tuple[Sequence[str | Path], Sequence[str]]:
        """Returns the files that contain the headers, and what else decides what is read."""
        part, row = self.places.locate(rows)
        return self.files, (hashlib.sha256(part.tobytes() + row.tobytes()).hexdigest(),)

    def place_keys(self, rows: np.ndarray) -> np.ndarray:
        """Returns a key of the place of each image, which two names of a file share: uint64 [n]."""
        files = bytes_keys(end_bytes(name) for name, _ in self.places.parts)
        part, row = self.places.locate(rows)
        return mix(files[part] ^ mix(row.astype(np.uint64)))

    def order(self, places: Places, seed: int, shuffle_buffer_size: int) -> EpochOrder:
        """Returns the order of some rows in training, without a mixture."""
        return ShuffledOrder(places.size, seed, shuffle_buffer_size > 1)

    def split_hashes(self, rows: np.ndarray) -> np.ndarray:
        """Returns the hash of each image that decides on its part, uint64 [n].

        By default, it is that of its number, so that appended images change no part.
        """
        return mix(np.arange(len(rows), dtype=np.uint64))

    def split_column(self, name: str, kind: str, rows: np.ndarray) -> Column:
        """Returns values of each image by which images can be split.

        Raises `DataError` if there are none of that name.
        """
        raise DataError(
            f"got {name!r}, but the images have no columns, expected none", code="unknown-column"
        )


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
class StoredImages(ImageDataset, Generic[Store]):
    """Some images of a store.

    Attributes:
        store: The images.
        places: The rows of the images that are used.
        num_classes: The number of classes, if it is known and classes have no names.
    """

    name: str
    store: Store
    places: Places
    image_shape: Shape
    labels: tuple[str, ...] | None = None
    num_classes: int | None = None
    origins: np.ndarray | None = None
    survey: ImageSurvey | None = None

    @property
    def size(self) -> int:
        """The number of images."""
        return self.places.size

    @property
    def stored(self) -> str:
        """Where the images are, for messages."""
        return self.store.stored

    @property
    def graph_reader(self) -> str:
        """The class that reads the images in a graph."""
        return self.store.graph_reader

    @property
    def file_reading(self) -> str:
        """Which files a worker reads: its own, but all if it reads blocks, not single records."""
        return "all" if self.store.reads_blocks and self.origins is None else "own"

    @property
    def id_forms(self) -> str:
        """The forms of IDs besides indices, for messages."""
        return self.store.id_forms

    def row(self, number: int) -> int:
        """Returns the row of an image."""
        return number if self.places.rows is None else int(self.places.rows[number])

    def read(self, numbers: Sequence[int]) -> list[bytes]:
        """Returns what is stored for some images."""
        return [*self.store.read([self.row(number) for number in numbers])]

    def location(self, number: int) -> str:
        """Returns the name of an image."""
        return self.store.name(self.row(number))

    def place(self, number: int) -> dict[str, object]:
        """Returns where an image is stored."""
        return self.store.place(self.row(number))

    def label(self, number: int) -> int | None:
        """Returns the class of an image, None if it has none."""
        return self.store.label(self.row(number))

    def find(self, text: str) -> Iterator[int]:
        """Yields the images that a path names, or a file and a number."""
        rows = self.store.rows_of_file(text)
        for row in rows or ():
            number = self.places.example_of(row)
            if number is not None:
                yield number
        if rows is None or (not rows and place_of(text) and self.store.places.unit == "row"):
            yield self.places.find(text, self.id_help)

    def order(self, seed: int, shuffle_buffer_size: int) -> EpochOrder:
        """Returns the order of the images in training, without a mixture."""
        return self.store.order(self.places, seed, shuffle_buffer_size)

    def data_files(self) -> list[DataFile]:
        """Returns descriptions of the files of the dataset."""
        return self.store.data_files(self.places.all_rows())

    @property
    def has_labels(self) -> bool:
        """Whether the classes are known without reading the images."""
        return self.store.has_labels

    def class_numbers(self) -> np.ndarray:
        """Returns the class of each image, int32 [n]."""
        return self.store.labels(self.places.all_rows())

    def known_classes(self) -> int | None:
        """Returns the number of classes, or None if only reading all images would tell."""
        return self.num_classes if self.labels is None else len(self.labels)

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

    def with_channels(self, channels: int) -> StoredImages[Store]:
        """Returns a dataset whose images are converted to some channels when they are decoded."""
        if self.image_shape[2] in (0, channels):
            return self
        return dataclasses.replace(self, image_shape=(*self.image_shape[:2], channels))

    def select(self, rows: np.ndarray) -> StoredImages[Store]:
        """Returns some of the images."""
        places = self.places.select(rows)
        return dataclasses.replace(
            self,
            places=places,
            image_shape=self.store.shape(int(places.all_rows()[0])),
            origins=None if self.origins is None else self.origins[rows],
        )

    def split_hashes(self) -> np.ndarray:
        """Returns the hash of each image that decides on its part, uint64 [n]."""
        return self.store.split_hashes(self.places.all_rows())

    def split_column(self, name: str, kind: str) -> Column:
        """Returns values of each image by which images can be split."""
        try:
            return self.store.split_column(name, kind, self.places.all_rows())
        except DataError as error:
            raise DataError(f"{self.name}: {error}", code=error.code) from None

    def join(self, datasets: Sequence[StoredImages[Store]]) -> StoredImages[Store]:
        """Returns the images of several datasets, whose stores are of the same class."""
        for number, dataset in enumerate(datasets[1:], 1):
            check_classes(number, dataset, self)
        counts = [dataset.num_classes for dataset in datasets if dataset.num_classes is not None]
        return StoredImages(
            **joined_fields(datasets),
            store=self.store.join([dataset.store for dataset in datasets]),
            image_shape=self.image_shape,
            labels=self.labels,
            num_classes=max(counts, default=None),
        )
