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
from orbit_runner.data.fingerprint import DataFile, describe_files
from orbit_runner.data.images.headers import image_shape
from orbit_runner.data.images.stored import StoredImages
from orbit_runner.data.order.epochs import EpochOrder
from orbit_runner.data.order.records import RecordOrder
from orbit_runner.data.places import Places
from orbit_runner.data.tfrecord.example import example_problem, features_of, value_of
from orbit_runner.data.tfrecord.framing import FileIndex, index_files
from orbit_runner.errors import DataError
from orbit_runner.utils.log import Progress

if TYPE_CHECKING:
    from typing_extensions import Self

IMAGE, LABEL = "image/encoded", "image/class/label"
BLOCK_RECORDS = 64
_Examples = TypeVar("_Examples", bound="ExampleImages")


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class ExampleImages(StoredImages):
    """Images in records that are tf.Examples.

    Attributes:
        files: The files, in the order in which records are numbered.
        image_key: The feature with a PNG or JPEG file.
        label_key: The feature with the number of the class.
        label_offset: The number of the first class in the files.
    """

    image_key: str = IMAGE
    label_key: str = LABEL
    label_offset: int = 0

    @classmethod
    @abc.abstractmethod
    def open(cls, files: Sequence[Path], **fields: Any) -> Self:
        """Returns the records of some files. Raises `DataError` if one is missing or damaged."""

    def image(self, record: bytes) -> bytes:
        """Returns the image file in a record, or the record if it has none."""
        try:
            image: bytes = value_of(features_of(record)[self.image_key], "bytes")
            return image
        except (ValueError, KeyError):
            return record  # The pipeline will report it.

    def label(self, number: int) -> int | None:
        """Returns the class in a record."""
        try:
            return self._label_in(self.read([number])[0])
        except (ValueError, KeyError):
            return None  # The pipeline will report it.

    def _label_in(self, record: bytes) -> int:
        return int(value_of(features_of(record)[self.label_key], "int64")) - self.label_offset

    def class_numbers(self) -> np.ndarray:
        """Returns the class of each image, from the cache if no file has changed."""
        paths, used = super().header_files()
        key = ["labels", self.label_key, self.label_offset, *used]
        files = [file_status(path) for path in paths]
        labels: np.ndarray = cached("images", key, self._parse_labels, files)["labels"]
        return labels

    def _parse_labels(self) -> Values:
        progress = Progress("reading the labels of records")
        labels = np.zeros(self.size, np.int32)
        for number, record in enumerate(self.records(range(self.size))):
            try:
                labels[number] = self._label_in(record)
            except (ValueError, KeyError, OverflowError):
                problem = self.problem(record) or f"{self.label_key} is no number of a class"
                message = f"{self.location(number)}: {problem}"
                raise DataError(message, field="source", code="bad-record") from None
            if number % 1024 == 0:
                progress(f"{number:,} records")
        return {"labels": labels}

    def problem(self, record: bytes) -> str:
        """Returns why a record is not a tf.Example with one image and one label, or ""."""
        return example_problem(record, {self.image_key: "bytes", self.label_key: "int64"})

    def location(self, number: int) -> str:
        """Returns the name of a record, such as `train-00: record 3`."""
        file, record = self.places.part_and_number(number)
        return f"{file}: record {record}"

    def place(self, number: int) -> dict[str, object]:
        """Returns the file of a record and its number there."""
        file, record = self.places.part_and_number(number)
        return {"file": file, "record": record}

    def header_files(self) -> tuple[Sequence[str | Path], Sequence[str]]:
        """Returns the files, and which of their records and features are used."""
        files, key = super().header_files()
        return files, (self.image_key, *key)

    def joined_rows(self: _Examples, datasets: Sequence[_Examples]) -> dict[str, Any]:
        """Returns no fields. Raises `DataError` if the features of the datasets differ."""
        for number, dataset in enumerate(datasets[1:], 1):
            names = [str(part.files[0].parent) for part in (dataset, self)]
            check_equal(number, names[0], names[1], dataset._features(), self._features())
        return {}

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


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class RecordImages(ExampleImages):
    """Images in TFRecord files.

    Attributes:
        indexes: The positions of the records of each file.
    """

    indexes: tuple[FileIndex, ...]

    stored = "in TFRecord files"
    graph_reader = "orbit_runner.data.tfrecord.pipeline:RecordReader"
    reads_blocks = True

    @classmethod
    def open(cls, files: Sequence[Path], **fields: Any) -> Self:
        """Returns the records of TFRecord files. Raises `DataError` if one is damaged."""
        indexes = tuple(index_files(files))
        places = places_of_records(files, [index.records for index in indexes])
        return cls(files=tuple(files), places=places, indexes=indexes, **fields)

    def records(self, numbers: Sequence[int]) -> Iterator[bytes]:
        """Yields records."""
        files, records = self.places.locate(np.asarray(numbers, np.int64))
        pairs = zip(files.tolist(), records.tolist(), strict=True)
        for file, group in itertools.groupby(pairs, lambda pair: pair[0]):
            yield from self.indexes[file].read(self.files[file], (record for _, record in group))

    def place(self, number: int) -> dict[str, object]:
        """Returns the file of a record, its number there and its first byte."""
        file, record = self.places.locate(np.array([number]))
        offset = int(self.indexes[int(file[0])].offsets[int(record[0])])
        return super().place(number) | {"offset": offset}

    def data_files(self) -> list[DataFile]:
        """Returns descriptions of the files, with the digests of their indexes; reads no file."""
        digests = {
            path.absolute(): f"records:{index.digest}"
            for path, index in zip(self.files, self.indexes, strict=True)
        }
        return describe_files(self.files, lambda path: digests[path])

    def blocks(self) -> Blocks:
        """Returns the blocks of the records that are used.

        A block is records that follow each other, and are in the same part of `BLOCK_RECORDS` of
        the file.
        """
        file, record = self.places.locate(np.arange(self.size))
        part = record // BLOCK_RECORDS
        follows = (np.diff(file) == 0) & (np.diff(record) == 1) & (np.diff(part) == 0)
        first = np.append(0, np.flatnonzero(~follows) + 1)
        counts = np.diff(first, append=self.size)
        sizes = [len(index.offsets) for index in self.indexes]
        starts = np.cumsum([0, *sizes], dtype=np.int64)[file[first]] + record[first]
        offsets = np.concatenate([index.offsets for index in self.indexes])
        begin = offsets[starts]
        return Blocks(file[first], counts, first, begin, offsets[starts + counts] - begin)

    def order(self, seed: int, shuffle_buffer_size: int) -> EpochOrder:
        """Returns the order of the records in training, without a mixture."""
        return RecordOrder(self.blocks().records, seed, shuffle_buffer_size)

    def joined_rows(self, datasets: Sequence[RecordImages]) -> dict[str, Any]:
        """Returns the fields for the records of several datasets."""
        indexes = tuple(index for dataset in datasets for index in dataset.indexes)
        return super().joined_rows(datasets) | {"indexes": indexes}


def places_of_records(files: Sequence[Path], counts: Sequence[int]) -> Places:
    """Returns the places of all records of some files."""
    parts = tuple((str(path), count) for path, count in zip(files, counts, strict=True))
    return Places(parts, unit="record", first=0)


def check_first_record(images: _Examples, *, any_size: bool = False) -> _Examples:
    """Returns the images of records with the shape of the first, which is checked.

    If `any_size` is True, the first image need not be valid. If it is not, the shape is 0, 0, 0.
    Raises `DataError` if there is no record, or if the first has no image or no label.
    """
    if not images.size:
        files = ", ".join(map(str, images.files[:3])) + (" …" if images.files[3:] else "")
        problem = f"no records in {files}" if files else "no files are specified"
        raise DataError(
            f"{images.name}: {problem}",
            field="input_path",
            code="empty-data",
        )
    problem = images.problem(images.read([0])[0])
    shape = (0, 0, 0)
    if not problem:
        try:
            shape = image_shape(next(images.header_sources([0])))
        except ValueError as error:
            if not any_size:
                problem = f"{images.image_key}: got {error}, expected a PNG or JPEG image"
    if problem:
        raise DataError(f"{images.location(0)}: {problem}", field="input_path", code="bad-record")
    return dataclasses.replace(images, image_shape=shape)


def load_records(
    name: str,
    images_class: type[_Examples],
    *,
    data_dir: str = "",
    input_path: Sequence[str] = (),
    image_field_key: str = IMAGE,
    label_field_key: str = LABEL,
    label_offset: int = 0,
    any_size: bool = False,
) -> _Examples:
    """Returns the images in records of tf.Example with the features that Model Garden uses.

    Args:
        name: The name for messages.
        images_class: The class of the images.
        data_dir: The directory that relative names start in.
        input_path: Files or patterns; of TFRecord files, uncompressed ones.
        image_field_key: The feature with a PNG or JPEG file.
        label_field_key: The feature with the number of the class.
        label_offset: The number of the first class.
        any_size: See `check_first_record`.

    Raises:
        DataError: A file is missing or damaged, or as `check_first_record`.
    """
    images = images_class.open(
        named_files(name, data_dir, input_path),
        name=name,
        image_key=image_field_key,
        label_key=label_field_key,
        label_offset=label_offset,
    )
    return check_first_record(images, any_size=any_size)


load = functools.partial(load_records, "tfrecord", RecordImages)
