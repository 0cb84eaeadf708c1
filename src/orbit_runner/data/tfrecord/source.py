"""Images in TFRecord files in Model Garden's format; NumPy only, to report a bad file early."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from orbit_runner.config.schema.data import input_paths
from orbit_runner.data.dataset import Place, Reader, check_equal
from orbit_runner.data.example_ids import is_same_file, place_of
from orbit_runner.data.files import named_files
from orbit_runner.data.fingerprint import DataFile
from orbit_runner.data.images.dataset import EncodedImages, ImageUse, joined_fields
from orbit_runner.data.images.headers import ImageSurvey, image_shape
from orbit_runner.data.order.epochs import EpochOrder
from orbit_runner.data.order.records import RecordOrder
from orbit_runner.data.tfrecord.example import bytes_of, example_problem, features_of, int_of
from orbit_runner.data.tfrecord.framing import (
    FRAME_BYTES,
    HEAD_BYTES,
    FileIndex,
    index_files,
    record_data,
    record_files,
    unreadable_error,
)
from orbit_runner.errors import DataError

IMAGE, LABEL = "image/encoded", "image/class/label"
BLOCK_RECORDS = 64


@dataclasses.dataclass(frozen=True, eq=False)
class Blocks:
    """The blocks of all files, in stored order; a block is read at once. Fields are int64 [k]."""

    file: np.ndarray  # Index of the file.
    records: np.ndarray  # Number of records, at least 1.
    first: np.ndarray  # Index of the first record, counted through all files.
    place: np.ndarray  # Index of the first record in its own file.
    offset: np.ndarray  # First byte in the file; 0 if the files are read by index.
    length: np.ndarray  # In bytes; 0 likewise.

    @classmethod
    def create(
        cls,
        file: np.ndarray,
        place: np.ndarray,
        records: np.ndarray,
        offset: np.ndarray | None = None,
        length: np.ndarray | None = None,
    ) -> Blocks:
        """Creates the blocks with records, numbered in this order."""
        columns = [file, place, records]
        columns += [file * 0 if column is None else column for column in (offset, length)]
        file, place, records, offset, length = (
            column[records > 0].astype(np.int64) for column in columns
        )
        return cls(file, records, np.cumsum(records) - records, place, offset, length)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class RecordDataset(EncodedImages):
    """Images in records that are tf.Examples, which are not loaded into memory."""

    name: str
    files: tuple[Path, ...]  # Records are numbered through the files in this order.
    blocks: Blocks  # Where the records that are used are.
    image_shape: tuple[int, int, int]  # Height, width and channels of the first image.
    # Per channel. The true mean is unknown, so by default values of 0 to 255 map to -1 to 1.
    mean: tuple[float, ...] = (127.5,)
    std: tuple[float, ...] = (127.5,)
    image_key: str = IMAGE  # The feature with a PNG or JPEG file.
    label_key: str = LABEL  # The feature with the number of the class.
    label_offset: int = 0  # Number of the first class in the files.
    labels: tuple[str, ...] | None = None  # Names of the classes, or None if unknown.
    # The dataset of a mixture that each record comes from, integers [n].
    origins: np.ndarray | None = None
    survey: ImageSurvey | None = None

    id_forms = ", or FILE:RECORD"

    @property
    def size(self) -> int:
        """The number of records that are used."""
        return int(self.blocks.records.sum())

    @abc.abstractmethod
    def record(self, number: int) -> tuple[dict[str, object], bytes]:
        """Returns file, number and the like of a record by name, and the record."""

    @abc.abstractmethod
    def records(self) -> Iterator[bytes]:
        """Yields all records."""

    def place(self, number: int) -> Place:
        """Returns the file of an image, and its record there."""
        names, record = self.record(number)
        try:
            features = features_of(record)
            label = int_of(features[self.label_key]) - self.label_offset
        except (ValueError, KeyError):
            return Place(names)  # The pipeline will report it.
        return Place(names, label)

    def location(self, number: int) -> tuple[int, int]:
        """Returns the index of the file of a record, and the index of the record in that file."""
        blocks = self.blocks
        block = int(np.searchsorted(blocks.first, number, side="right")) - 1
        return int(blocks.file[block]), number - int(blocks.first[block]) + int(blocks.place[block])

    def stored_places(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the index of the file of each record, and its number there, int64 [n]."""
        blocks = self.blocks
        shift = np.repeat(blocks.place - blocks.first, blocks.records)
        return np.repeat(blocks.file, blocks.records), shift + np.arange(self.size)

    def example_name(self, number: int) -> str:
        """Returns the name of a record, such as `train-00: record 3`."""
        file, record = self.location(number)
        return f"{self.files[file]}: record {record}"

    def find(self, text: str) -> Iterator[int]:
        """Yields the image that a file and the number of a record name."""
        place = place_of(text)
        blocks = self.blocks
        for number, path in enumerate(self.files if place else ()):
            if place is None or not is_same_file(str(path), place[0]):
                continue
            inside = (blocks.file == number) & (blocks.place <= place[1])
            inside &= place[1] < blocks.place + blocks.records
            yield from (blocks.first + place[1] - blocks.place)[inside].tolist()

    def encoded_images(self) -> Iterator[bytes]:
        """Yields the encoded image of each record, or the record if it has none."""
        for record in self.records():
            try:
                yield bytes_of(features_of(record)[self.image_key])
            except (ValueError, KeyError):
                yield record

    def joined_record_fields(self, datasets: Sequence[RecordDataset]) -> dict[str, Any]:
        """Returns the fields of the records of several datasets that all kinds of files have.

        Raises `DataError` if their features or their classes differ.
        """
        for number, dataset in enumerate(datasets[1:], 1):
            check_equal(number, dataset.name, self.name, _features(dataset), _features(self))
        keys = {name: getattr(self, name) for name in ("image_key", "label_key", "label_offset")}
        parts = [dataset.blocks for dataset in datasets]
        firsts = np.cumsum([0, *(len(dataset.files) for dataset in datasets)])
        columns = {
            name: np.concatenate([getattr(blocks, name) for blocks in parts])
            for name in ("place", "records", "offset", "length")
        }
        file = np.concatenate([b.file + first for b, first in zip(parts, firsts, strict=False)])
        return (
            joined_fields(datasets)
            | keys
            | {
                "files": tuple(path for dataset in datasets for path in dataset.files),
                "blocks": Blocks.create(file, **columns),
            }
        )


def _features(dataset: RecordDataset) -> dict[str, str]:
    return {
        "the image in": dataset.image_key,
        "the label in": dataset.label_key,
        "label_offset": str(dataset.label_offset),
    }


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class RecordSource(RecordDataset):
    """A dataset of images in TFRecord files."""

    stored = "in TFRecord files"
    decodes_batches = True
    graph_reader = "orbit_runner.data.tfrecord.pipeline:RecordReader"

    indexes: tuple[FileIndex, ...]  # One per file.

    @property
    def file_reading(self) -> str:  # type: ignore[override]
        """Which files a worker reads: all, because it reads blocks, but of a mixture, records."""
        return "all" if self.origins is None else "own"

    def select(self, rows: np.ndarray) -> RecordSource:
        """Raises `DataError`, because records are read in blocks."""
        raise DataError(
            f"{self.name}: TFRecord files are read in blocks, so that task.split cannot divide "
            "them; use ArrayRecord files, or name other files or another tfds_split in each "
            "section",
            field="source",
            code="not-supported",
        )

    def order(self, seed: int, shuffle_buffer_size: int) -> EpochOrder:
        """Returns the order of the records in training, without a mixture."""
        return RecordOrder(self.blocks.records, seed, shuffle_buffer_size)

    def data_files(self) -> list[DataFile]:
        """Returns descriptions of the files."""
        return record_files(self.files, self.indexes)

    def record(self, number: int) -> tuple[dict[str, object], bytes]:
        """Returns file, number and offset of a record, and the record."""
        file, record = self.location(number)
        start = int(self.indexes[file].offsets[record])
        names = {"file": str(self.files[file]), "record": record, "offset": start}
        return names, record_data(self.files[file], start)

    def located_records(self) -> Iterator[tuple[dict[str, object], bytes]]:
        """Yields file, number and offset of each record, and the record."""
        blocks = self.blocks
        for file, place, count in zip(blocks.file, blocks.place, blocks.records, strict=True):
            path, offsets = self.files[file], self.indexes[file].offsets
            try:
                with path.open("rb") as opened:
                    for record in range(int(place), int(place + count)):
                        start = int(offsets[record])
                        opened.seek(start + HEAD_BYTES)
                        data = opened.read(int(offsets[record + 1]) - start - FRAME_BYTES)
                        yield {"file": str(path), "record": record, "offset": start}, data
            except OSError as error:
                raise unreadable_error(path, error) from None

    def records(self) -> Iterator[bytes]:
        """Yields all records."""
        return (record for _, record in self.located_records())

    def join(self, datasets: Sequence[RecordSource]) -> RecordSource:
        """Returns the TFRecord files of several datasets."""
        return RecordSource(
            **self.joined_record_fields(datasets),
            indexes=tuple(index for dataset in datasets for index in dataset.indexes),
        )


def record_source(
    name: str,
    files: Sequence[Path],
    keys: tuple[str, str],
    part: tuple[int, int] | None = None,
    *,
    any_size: bool = False,
    **fields: Any,
) -> RecordSource:
    """Returns the records of TFRecord files.

    Args:
        name: The name for messages.
        files: The files, in order.
        keys: The features of the image and of the label.
        part: The first record that is used, and the one after the last; None for all records.
        any_size: Whether the first image need not be valid.
        **fields: More fields of the source.

    Raises:
        DataError: A file is damaged, or the first record has no image or no label.
    """
    indexes = index_files(files)
    shape = first_shape(
        name,
        files,
        [index.records for index in indexes],
        lambda file: record_data(files[file], 0),
        keys,
        any_size=any_size,
    )
    return RecordSource(
        name=name,
        files=tuple(files),
        indexes=tuple(indexes),
        blocks=_blocks(indexes, part),
        image_shape=shape,
        image_key=keys[0],
        label_key=keys[1],
        **fields,
    )


def load(
    *,
    split: str = "",
    data_dir: str = "",
    input_path: Sequence[str] = (),
    image_key: str = IMAGE,
    label_key: str = LABEL,
    label_offset: int = 0,
    any_size: bool = False,
) -> RecordSource:
    """Returns the records of TFRecord files of tf.Example with the features that Model Garden uses.

    `input_path` is a list of uncompressed files or patterns, relative to `data_dir`. `split` must
    be empty, because the files determine what is read. `image_key` is the feature with a PNG or
    JPEG file, `label_key` is the feature with the number of the class, and `label_offset` is the
    number of the first class.

    The image shape is that of the first image; if `any_size` is true, it is 0, 0, 0 if that image
    is not valid. Raises DataError if a file is missing or damaged, or if a setting does not apply.
    """
    files = record_paths("tfrecord", split, data_dir, input_path)
    keys = (image_key, label_key)
    return record_source("tfrecord", files, keys, any_size=any_size, label_offset=label_offset)


def record_paths(name: str, split: str, data_dir: str, input_path: Sequence[str]) -> list[Path]:
    """Returns the files of `input_path`; raises `DataError` if there are none, or for a split."""
    if split:
        raise DataError(
            f"{name}: got split {split!r}, expected none: input_path specifies the files",
            field="split",
            code="unknown-part",
        )
    files = named_files(name, data_dir, input_path)
    if not files:
        raise DataError(
            f"{name}: no files are specified; set input_path, for example to train-*",
            field="input_path",
            code="not-set",
        )
    return files


def first_shape(
    name: str,
    files: Sequence[Path],
    counts: Sequence[int],
    read_first: Callable[[int], bytes],
    keys: tuple[str, str],
    *,
    any_size: bool,
) -> tuple[int, int, int]:
    """Returns the height, width and channels of the first image.

    Args:
        name: The name of the dataset for messages.
        files: The files, in order.
        counts: The number of records of each file.
        read_first: Returns the first record of the file with an index.
        keys: The features of the image and of the label.
        any_size: Whether to return 0, 0, 0 if the image is not valid.

    Raises:
        DataError: There is no record, or the first one does not have the features.
    """
    file = next((number for number, count in enumerate(counts) if count), None)
    if file is None:
        raise DataError(
            f"{name}: no records found (files: {len(files)}, such as {files[0]})",
            field="input_path",
            code="empty-data",
        )
    record = read_first(file)
    problem = example_problem(record, {keys[0]: "bytes", keys[1]: "int64"})
    if not problem:
        try:
            return image_shape(bytes_of(features_of(record)[keys[0]]))
        except ValueError as error:
            if any_size:
                return 0, 0, 0
            problem = f"{keys[0]}: got {error}, expected a PNG or JPEG image"
    raise DataError(f"{files[file]}: record 0: {problem}", field="input_path", code="bad-record")


def _blocks(indexes: Sequence[FileIndex], part: tuple[int, int] | None) -> Blocks:
    """Returns the blocks of a part of the records; each but a file's last is of `BLOCK_RECORDS`."""
    start, stop = part or (0, sum(index.records for index in indexes))
    columns = []
    first = 0
    for number, index in enumerate(indexes):
        begins = np.arange(0, index.records, BLOCK_RECORDS)
        ends = np.minimum(begins + BLOCK_RECORDS, index.records)
        places, ends = np.clip(start - first, begins, ends), np.clip(stop - first, begins, ends)
        offsets = index.offsets[places]
        lengths = index.offsets[ends] - offsets
        columns.append((np.full(len(begins), number), places, ends - places, offsets, lengths))
        first += index.records
    return Blocks.create(*map(np.concatenate, zip(*columns, strict=True)))


def record_arguments(section: Any, use: ImageUse) -> dict[str, object]:
    """Returns the arguments of `load` for a section."""
    return {
        "split": "" if use.is_split else section.split,
        "data_dir": section.data_dir,
        "input_path": input_paths(section),
        "image_key": section.image_field_key,
        "label_key": section.label_field_key,
        "label_offset": section.label_offset,
        "any_size": use.input_size is not None,
    }


IMAGES = Reader(load, record_arguments)
