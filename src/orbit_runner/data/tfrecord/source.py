"""Images in TFRecord files in Model Garden's format; NumPy only, to report a bad file early."""

from __future__ import annotations

import abc
import dataclasses
import functools
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from orbit_runner.data.dataset import check_equal
from orbit_runner.data.disk_cache import Values, cached, file_status
from orbit_runner.data.files import named_files
from orbit_runner.data.fingerprint import DataFile
from orbit_runner.data.images.headers import image_shape
from orbit_runner.data.images.stored import ImageStore, StoredImages
from orbit_runner.data.order.epochs import EpochOrder
from orbit_runner.data.order.records import RecordOrder
from orbit_runner.data.places import Places
from orbit_runner.data.tfrecord.example import bytes_of, example_problem, features_of, int_of
from orbit_runner.data.tfrecord.framing import FileIndex, index_files, record_files
from orbit_runner.errors import DataError
from orbit_runner.utils.log import Progress

if TYPE_CHECKING:
    from typing_extensions import Self

IMAGE, LABEL = "image/encoded", "image/class/label"
BLOCK_RECORDS = 64
Examples = TypeVar("Examples", bound="ExampleStore")


@dataclasses.dataclass(frozen=True, eq=False)
class ExampleStore(ImageStore):
    """Images in records that are tf.Examples.

    Attributes:
        files: The files, in the order in which records are numbered.
        places: The records of the files.
        image_key: The feature with a PNG or JPEG file.
        label_key: The feature with the number of the class.
        label_offset: The number of the first class in the files.
    """

    files: tuple[Path, ...]
    places: Places
    image_key: str = IMAGE
    label_key: str = LABEL
    label_offset: int = 0

    has_labels = False

    @classmethod
    @abc.abstractmethod
    def open(
        cls, files: Sequence[Path], image_key: str, label_key: str, label_offset: int = 0
    ) -> Self:
        """Returns the records of some files. Raises `DataError` if one is missing or damaged."""

    def image(self, stored: bytes) -> bytes:
        """Returns the image file in a record, or the record if it has none."""
        try:
            return bytes_of(features_of(stored)[self.image_key])
        except (ValueError, KeyError):
            return stored  # The pipeline will report it.

    def label(self, row: int) -> int | None:
        """Returns the class in a record."""
        try:
            return int_of(features_of(next(self.read([row])))[self.label_key]) - self.label_offset
        except (ValueError, KeyError):
            return None  # The pipeline will report it.

    def labels(self, rows: np.ndarray) -> np.ndarray:
        """Returns the classes in some records, from the cache if no file has changed."""
        paths, used = super().header_files(rows)
        key = ["labels", self.label_key, self.label_offset, *used]
        files = [file_status(path) for path in paths]
        labels: np.ndarray = cached("images", key, lambda: self._parse_labels(rows), files)[
            "labels"
        ]
        return labels

    def _parse_labels(self, rows: np.ndarray) -> Values:
        progress = Progress("reading the labels of records")
        labels = np.zeros(len(rows), np.int32)
        for number, record in enumerate(self.read(rows.tolist())):
            try:
                labels[number] = int_of(features_of(record)[self.label_key]) - self.label_offset
            except (ValueError, KeyError, OverflowError):
                problem = self.problem(record) or f"{self.label_key} is no number of a class"
                message = f"{self.name(int(rows[number]))}: {problem}"
                raise DataError(message, field="source", code="bad-record") from None
            if number % 1024 == 0:
                progress(f"{number:,} records")
        return {"labels": labels}

    def problem(self, record: bytes) -> str:
        """Returns why a record is not a tf.Example with one image and one label, or ""."""
        return example_problem(record, {self.image_key: "bytes", self.label_key: "int64"})

    def name(self, row: int) -> str:
        """Returns the name of a record, such as `train-00: record 3`."""
        file, record = self.file_and_record(row)
        return f"{file}: record {record}"

    def place(self, row: int) -> dict[str, object]:
        """Returns the file of a record and its number there."""
        file, record = self.file_and_record(row)
        return {"file": str(file), "record": record}

    def file_and_record(self, row: int) -> tuple[Path, int]:
        """Returns the file of a record and its number there."""
        file, record = self.places.locate(np.array([row]))
        return self.files[int(file[0])], int(record[0])

    def header_files(self, rows: np.ndarray) -> tuple[Sequence[str | Path], Sequence[str]]:
        """Returns the files, and which of their records and features are used."""
        files, key = super().header_files(rows)
        return files, (self.image_key, *key)

    def joined_fields(self, stores: Sequence[ExampleStore]) -> dict[str, Any]:
        """Returns the fields of several stores. Raises `DataError` if their features differ."""
        for number, store in enumerate(stores[1:], 1):
            names = [str(each.files[0].parent) for each in (store, self)]
            check_equal(number, names[0], names[1], store._features(), self._features())
        return {
            "files": tuple(path for store in stores for path in store.files),
            "places": self.places.join([store.places for store in stores]),
            "image_key": self.image_key,
            "label_key": self.label_key,
            "label_offset": self.label_offset,
        }

    def _features(self) -> dict[str, str]:
        return {
            "the image in": self.image_key,
            "the label in": self.label_key,
            "label_offset": str(self.label_offset),
        }


@dataclasses.dataclass(frozen=True)
class Blocks:
    """Records that are read at once, in stored order. All fields are int64 [k].

    Attributes:
        file: The index of the file.
        records: The number of records, at least 1.
        first: The number of the first record among those that are used.
        offset: The first byte in the file.
        length: The number of bytes.
    """

    file: np.ndarray
    records: np.ndarray
    first: np.ndarray
    offset: np.ndarray
    length: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class RecordStore(ExampleStore):
    """Images in TFRecord files.

    Attributes:
        indexes: The positions of the records of each file.
    """

    indexes: tuple[FileIndex, ...] = ()

    stored = "in TFRecord files"
    graph_reader = "orbit_runner.data.tfrecord.pipeline:RecordReader"
    reads_blocks = True

    @classmethod
    def open(
        cls, files: Sequence[Path], image_key: str, label_key: str, label_offset: int = 0
    ) -> RecordStore:
        """Returns the records of TFRecord files. Raises `DataError` if one is damaged."""
        indexes = tuple(index_files(files))
        places = places_of_records(files, [index.records for index in indexes])
        return cls(tuple(files), places, image_key, label_key, label_offset, indexes)

    def read(self, rows: Sequence[int]) -> Iterator[bytes]:
        """Yields records."""
        files, records = self.places.locate(np.asarray(rows, np.int64))
        pairs = zip(files.tolist(), records.tolist(), strict=True)
        for file, group in itertools.groupby(pairs, lambda pair: pair[0]):
            yield from self.indexes[file].read(self.files[file], (record for _, record in group))

    def place(self, row: int) -> dict[str, object]:
        """Returns the file of a record, its number there and its first byte."""
        file, record = self.places.locate(np.array([row]))
        offset = int(self.indexes[int(file[0])].offsets[int(record[0])])
        return super().place(row) | {"offset": offset}

    def data_files(self, rows: np.ndarray) -> list[DataFile]:
        """Returns descriptions of the files."""
        return record_files(self.files, self.indexes)

    def blocks(self, places: Places) -> Blocks:
        """Returns the blocks of some records.

        A block is records that follow each other, and are in the same part of `BLOCK_RECORDS` of
        the file.
        """
        file, record = places.locate(np.arange(places.size))
        part = record // BLOCK_RECORDS
        follows = (np.diff(file) == 0) & (np.diff(record) == 1) & (np.diff(part) == 0)
        first = np.append(0, np.flatnonzero(~follows) + 1)
        counts = np.diff(first, append=places.size)
        sizes = [len(index.offsets) for index in self.indexes]
        starts = np.cumsum([0, *sizes], dtype=np.int64)[file[first]] + record[first]
        offsets = np.concatenate([index.offsets for index in self.indexes])
        begin = offsets[starts]
        return Blocks(file[first], counts, first, begin, offsets[starts + counts] - begin)

    def order(self, places: Places, seed: int, shuffle_buffer_size: int) -> EpochOrder:
        """Returns the order of some records in training, without a mixture."""
        return RecordOrder(self.blocks(places).records, seed, shuffle_buffer_size)

    def join(self, stores: Sequence[RecordStore]) -> RecordStore:
        """Returns the TFRecord files of several stores."""
        indexes = tuple(index for store in stores for index in store.indexes)
        return RecordStore(**self.joined_fields(stores), indexes=indexes)


def places_of_records(files: Sequence[Path], counts: Sequence[int]) -> Places:
    """Returns the places of all records of some files."""
    parts = tuple((str(path), count) for path, count in zip(files, counts, strict=True))
    return Places(parts, unit="record", first=0)


def record_images(
    name: str,
    store: Examples,
    part: tuple[int, int] | None = None,
    *,
    any_size: bool = False,
    labels: tuple[str, ...] | None = None,
) -> StoredImages[Examples]:
    """Returns the images of the records of a store.

    Args:
        name: The name for messages.
        store: The records.
        part: The first record that is used, and the one after the last; None for all records.
        any_size: Whether the first image need not be valid. If it is not, the shape is 0, 0, 0.
        labels: The names of the classes.

    Raises:
        DataError: There is no record, or the first has no image or no label.
    """
    if not store.places.size:
        files = ", ".join(map(str, store.files[:3])) + (" …" if store.files[3:] else "")
        raise DataError(
            f"{name}: no records in {files}" if files else f"{name}: no files are specified",
            field="input_path",
            code="empty-data",
        )
    problem = store.problem(next(store.read([0])))
    shape = (0, 0, 0)
    if not problem:
        try:
            shape = image_shape(next(store.header_sources([0])))
        except ValueError as error:
            if not any_size:
                problem = f"{store.image_key}: got {error}, expected a PNG or JPEG image"
    if problem:
        raise DataError(f"{store.name(0)}: {problem}", field="input_path", code="bad-record")
    rows = None if part is None else np.arange(*part, dtype=np.int64)
    return StoredImages(
        name=name,
        store=store,
        places=dataclasses.replace(store.places, rows=rows),
        image_shape=shape,
        labels=labels,
    )


def load_records(
    name: str,
    store_class: type[Examples],
    *,
    data_dir: str = "",
    input_path: Sequence[str] = (),
    image_field_key: str = IMAGE,
    label_field_key: str = LABEL,
    label_offset: int = 0,
    any_size: bool = False,
) -> StoredImages[Examples]:
    """Returns the images in records of tf.Example with the features that Model Garden uses.

    Args:
        name: The name for messages.
        store_class: The class of the records.
        data_dir: The directory that relative names start in.
        input_path: Files or patterns; of TFRecord files, uncompressed ones.
        image_field_key: The feature with a PNG or JPEG file.
        label_field_key: The feature with the number of the class.
        label_offset: The number of the first class.
        any_size: See `record_images`.

    Raises:
        DataError: A file is missing or damaged, or as `record_images`.
    """
    files = named_files(name, data_dir, input_path)
    store = store_class.open(files, image_field_key, label_field_key, label_offset)
    return record_images(name, store, any_size=any_size)


load = functools.partial(load_records, "tfrecord", RecordStore)
