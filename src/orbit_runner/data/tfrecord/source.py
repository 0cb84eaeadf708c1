"""Images in TFRecord files in Model Garden's format; NumPy only, to report a bad file early."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import functools
import hashlib
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from orbit_runner.config.schema.data import input_paths
from orbit_runner.data.dataset import Place, Reader, check_equal
from orbit_runner.data.example_ids import is_same_file, place_of
from orbit_runner.data.files import named_files
from orbit_runner.data.fingerprint import DataFile
from orbit_runner.data.images.dataset import (
    EncodedImages,
    Headers,
    ImageUse,
    joined_fields,
)
from orbit_runner.data.images.headers import ImageHeader, ImageSurvey, image_shape, read_header
from orbit_runner.data.order.epochs import EpochOrder
from orbit_runner.data.order.records import RecordOrder
from orbit_runner.data.tfrecord.example import (
    bytes_of,
    example_problem,
    features_of,
    int_of,
)
from orbit_runner.data.tfrecord.framing import (
    BLOCK_RECORDS,
    HEAD_BYTES,
    TAIL_BYTES,
    FileIndex,
    first_record,
    index_files,
    record_data,
    record_files,
    record_starts,
    unreadable_error,
)
from orbit_runner.errors import DataError

IMAGE, LABEL = "image/encoded", "image/class/label"


@dataclasses.dataclass(frozen=True, eq=False)
class Blocks:
    """The blocks of all files, in stored order; a block is read at once. Fields are int64 [k]."""

    file: np.ndarray  # Index of the file.
    offset: np.ndarray  # First byte in the file.
    length: np.ndarray  # In bytes.
    records: np.ndarray  # Number of records, at least 1.
    first: np.ndarray  # Index of the first record, counted through all files.
    place: np.ndarray  # Index of the first record in its own file.


class RecordDataset(EncodedImages):
    """Images in records that are tf.Examples.

    Attributes:
        files: The files, in the order in which records are numbered.
        blocks: Where the records are.
        image_key: The feature with a PNG or JPEG file.
        label_key: The feature with the number of the class.
        label_offset: The number of the first class in the files.
    """

    files: tuple[Path, ...]
    blocks: Blocks
    image_key: str
    label_key: str
    label_offset: int
    part: tuple[int, int] | None
    rows: np.ndarray | None = None  # The records that `select` chose.

    id_forms = ", or FILE:RECORD"

    @abc.abstractmethod
    def record(self, number: int) -> tuple[dict[str, object], bytes]:
        """Returns file, number and the like of a record by name, and the record."""

    @abc.abstractmethod
    def records(self) -> Iterator[bytes]:
        """Yields all records."""

    @abc.abstractmethod
    def named_records(self) -> Iterator[tuple[str, bytes]]:
        """Yields the names of all records and the records."""

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
        within = np.arange(self.size) - np.repeat(blocks.first, blocks.records)
        file = np.repeat(blocks.file, blocks.records)
        return file, np.repeat(blocks.place, blocks.records) + within

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

    def headers(self) -> Headers:
        """Returns how the headers of the images are read."""
        settings = ["survey", self.image_key, str(self.part), str(self.size)]
        if self.rows is not None:
            settings.append(hashlib.sha256(self.rows.tobytes()).hexdigest())
        return Headers(self.files, settings, self._headers())

    def _headers(self) -> Iterator[tuple[str, ImageHeader | None]]:
        for name, record in self.named_records():
            header = None
            # The pipeline reports a record without an image.
            with contextlib.suppress(ValueError, KeyError):
                header = read_header(bytes_of(features_of(record)[self.image_key]))
            yield name, header


def joined_record_fields(datasets: Sequence[RecordDataset]) -> dict[str, Any]:
    """Returns the fields of joined records that all kinds of files have.

    Raises `DataError` if their features or their classes differ.
    """
    first = datasets[0]
    for number, dataset in enumerate(datasets[1:], 1):
        check_equal(number, dataset.name, first.name, _features(dataset), _features(first))
    keys = {name: getattr(first, name) for name in ("image_key", "label_key", "label_offset")}
    return joined_fields(datasets) | keys | {"sources": tuple(datasets)}


def _features(dataset: RecordDataset) -> dict[str, str]:
    return {
        "the image in": dataset.image_key,
        "the label in": dataset.label_key,
        "label_offset": str(dataset.label_offset),
    }


@dataclasses.dataclass(frozen=True, eq=False)
class RecordSource(RecordDataset):
    """A dataset of images in TFRecord files, which are not loaded into memory."""

    stored = "in TFRecord files"
    decodes_batches = True
    graph_reader = "orbit_runner.data.tfrecord.pipeline:RecordReader"

    name: str
    files: tuple[Path, ...]  # Records are numbered through the files in this order.
    indexes: tuple[FileIndex, ...]  # One per file.
    image_shape: tuple[int, int, int]  # Height, width and channels of every image.
    # Per channel. The true mean is unknown, so by default values of 0 to 255 map to -1 to 1.
    mean: tuple[float, ...] = (127.5,)
    std: tuple[float, ...] = (127.5,)
    image_key: str = IMAGE
    label_key: str = LABEL
    label_offset: int = 0  # Number of the first class in the files.
    labels: tuple[str, ...] | None = None  # Names of the classes, or None if unknown.
    # The first record that is used, and the one after the last; None for all records.
    part: tuple[int, int] | None = None
    survey: ImageSurvey | None = None  # Of the headers of all images; see `add_survey`.

    @property
    def size(self) -> int:
        """The number of records that are used."""
        if self.part is not None:
            return self.part[1] - self.part[0]
        return sum(index.records for index in self.indexes)

    @functools.cached_property
    def blocks(self) -> Blocks:  # type: ignore[override]
        """The blocks of all files, or of the part that is used."""
        parts = [index.offsets for index in self.indexes]
        records = np.concatenate([_count_block_records(index) for index in self.indexes])
        blocks = Blocks(
            file=np.repeat(np.arange(len(parts)), [len(part) - 1 for part in parts]),
            offset=np.concatenate([part[:-1] for part in parts]),
            length=np.concatenate([np.diff(part) for part in parts]),
            records=records,
            first=np.cumsum(records) - records,
            place=np.concatenate([BLOCK_RECORDS * np.arange(len(part) - 1) for part in parts]),
        )
        return blocks if self.part is None else _select_records(blocks, self.files, *self.part)

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
        blocks = self.blocks
        block = int(np.searchsorted(blocks.first, number, side="right")) - 1
        file, record = self.location(number)
        path = self.files[file]
        start = self._block_starts(block)[record - int(blocks.place[block])]
        names = {"file": str(path), "record": record, "offset": start}
        return names, record_data(path, start)

    @functools.cached_property
    def _starts(self) -> dict[int, list[int]]:
        return {}

    def _block_starts(self, block: int) -> list[int]:
        """Returns the offsets of the records of a block."""
        if block not in self._starts:
            path = self.files[int(self.blocks.file[block])]
            self._starts[block] = record_starts(path, int(self.blocks.offset[block]))
        return self._starts[block]

    def located_records(self) -> Iterator[tuple[dict[str, object], bytes]]:
        """Yields file, number and offset of each record, and the record."""
        blocks = range(len(self.blocks.file))
        return itertools.chain.from_iterable(map(self._block_records, blocks))

    def records(self) -> Iterator[bytes]:
        """Yields all records."""
        return (record for _, record in self.located_records())

    def named_records(self) -> Iterator[tuple[str, bytes]]:
        """Yields the names of all records and the records."""
        for names, record in self.located_records():
            yield f"{names['file']}: record {names['record']}", record

    def _block_records(self, block: int) -> Iterator[tuple[dict[str, object], bytes]]:
        """Yields file, number and offset of each record of a block, and the record."""
        path = self.files[int(self.blocks.file[block])]
        offset, number = int(self.blocks.offset[block]), int(self.blocks.place[block])
        try:
            with path.open("rb") as file:
                file.seek(offset)
                for record in range(number, number + int(self.blocks.records[block])):
                    length = int.from_bytes(file.read(HEAD_BYTES)[:8], "little")
                    names = {"file": str(path), "record": record, "offset": offset}
                    yield names, file.read(length)
                    offset = file.seek(TAIL_BYTES, os.SEEK_CUR)
        except OSError as error:
            raise unreadable_error(path, error) from None

    def join(self, datasets: Sequence[RecordSource]) -> JoinedRecords:
        """Returns the TFRecord files of several datasets."""
        return JoinedRecords(
            **joined_record_fields(datasets),
            files=tuple(path for dataset in datasets for path in dataset.files),
            indexes=tuple(index for dataset in datasets for index in dataset.indexes),
        )


@dataclasses.dataclass(frozen=True, eq=False)
class JoinedRecords(RecordSource):
    """The records of several datasets, one after the other, read by their index, in any order."""

    graph_reader = "orbit_runner.data.tfrecord.pipeline:JoinedRecordReader"

    sources: tuple[RecordSource, ...] = ()
    # The dataset of the mixture that each record comes from, integers [n].
    origins: np.ndarray | None = None

    @property
    def size(self) -> int:
        """The number of records that are used."""
        return sum(source.size for source in self.sources)

    @functools.cached_property
    def blocks(self) -> Blocks:  # type: ignore[override]
        """The blocks of all datasets."""
        return join_blocks([(source.blocks, len(source.files)) for source in self.sources])


def join_blocks(parts: Sequence[tuple[Blocks, int]]) -> Blocks:
    """Returns the blocks of several datasets as those of one.

    `parts` are the blocks and the number of files of each dataset.
    """
    names = [field.name for field in dataclasses.fields(Blocks)]
    columns = {
        name: np.concatenate([getattr(blocks, name) for blocks, _ in parts]) for name in names
    }
    files = np.array([count for _, count in parts], np.int64)
    columns["file"] += np.repeat(
        np.cumsum(files) - files, [len(blocks.file) for blocks, _ in parts]
    )
    columns["first"] = np.cumsum(columns["records"]) - columns["records"]
    return Blocks(**columns)


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
    if split:
        raise DataError(
            f"tfrecord: got split {split!r}, expected none: input_path specifies the files",
            field="split",
            code="unknown-part",
        )
    files = named_files("tfrecord", data_dir, input_path)
    if not files:
        raise DataError(
            "tfrecord: no files are specified; set input_path, for example to train-*",
            field="input_path",
            code="not-set",
        )
    indexes = index_files(files)
    keys = (image_key, label_key)
    return RecordSource(
        "tfrecord",
        tuple(files),
        tuple(indexes),
        first_shape("tfrecord", files, indexes, keys, any_size),
        image_key=image_key,
        label_key=label_key,
        label_offset=label_offset,
    )


def first_shape(
    name: str,
    files: Sequence[Path],
    indexes: Sequence[FileIndex],
    keys: tuple[str, str],
    any_size: bool = False,
) -> tuple[int, int, int]:
    """Returns the height, width and channels of the first image.

    `keys` are the features of the image and of the label. If `any_size` is true and the image is
    not valid, returns 0, 0, 0. Raises DataError if there is no record or if the first one does not
    have the features.
    """
    filled = [path for path, index in zip(files, indexes, strict=True) if index.records]
    if not filled:
        raise DataError(
            f"{name}: no records found (files: {len(files)}, such as {files[0]})",
            field="input_path",
            code="empty-data",
        )
    path = filled[0]
    return shape_of_record(f"{path}: record 0 at byte 0", first_record(path), *keys, any_size)


def _select_records(blocks: Blocks, files: Sequence[Path], start: int, stop: int) -> Blocks:
    """Returns the blocks of the records from `start` to `stop`, exclusive."""
    kept = np.flatnonzero((blocks.first < stop) & (blocks.first + blocks.records > start))
    columns = {f.name: getattr(blocks, f.name)[kept] for f in dataclasses.fields(blocks)}
    skipped = start - int(columns["first"][0])
    if skipped:
        path = files[int(columns["file"][0])]
        end = int(columns["offset"][0] + columns["length"][0])
        columns["offset"][0] = record_starts(path, int(columns["offset"][0]))[skipped]
        columns["length"][0] = end - columns["offset"][0]
        columns["records"][0] -= skipped
        columns["place"][0] += skipped
    columns["records"][-1] -= int(columns["records"].sum()) - (stop - start)
    columns["first"] = np.cumsum(columns["records"]) - columns["records"]
    return Blocks(**columns)


def _count_block_records(index: FileIndex) -> np.ndarray:
    firsts = BLOCK_RECORDS * np.arange(len(index.offsets) - 1)
    return np.minimum(BLOCK_RECORDS, index.records - firsts)


def shape_of_record(
    where: str, record: bytes, image: str, label: str, any_size: bool
) -> tuple[int, int, int]:
    """Returns the height, width and channels of the image in a serialized tf.Example.

    `where` is the name of the record in messages. `image` and `label` are the features of the
    image and of the label. If `any_size` is true and the image is not valid, returns 0, 0, 0.
    Raises DataError if the record does not have the features.
    """
    try:
        features = features_of(record)
    except ValueError:
        raise _mismatch_error(where, "data that is not a tf.Example", image, label) from None
    if not {image, label} <= set(features):
        got = f"features {', '.join(sorted(features)) or '(none)'}"
        raise _mismatch_error(where, got, image, label)
    problem = example_problem(record, {label: "int64"})
    if problem:
        raise DataError(f"{where}: {problem}", field="input_path", code="bad-record")
    try:
        encoded = bytes_of(features[image])
    except ValueError as error:
        raise _mismatch_error(where, f"{image} with {error}", image, label) from None
    try:
        return image_shape(encoded)
    except ValueError as error:
        if any_size:
            return 0, 0, 0
        raise _mismatch_error(where, f"{image} with {error}", image, label) from None


def _mismatch_error(where: str, got: str, image: str, label: str) -> DataError:
    return DataError(
        f"{where}: got {got}, expected a tf.Example with {image} (a PNG or JPEG image) and {label}",
        field="input_path",
        code="bad-record",
    )


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
