"""Images in ArrayRecord files of tf.Example; does not import TensorFlow, to report errors early."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from orbit_runner.data.array_record.files import ArrayRecordFiles
from orbit_runner.data.dataset import Reader
from orbit_runner.data.files import named_files
from orbit_runner.data.fingerprint import DataFile, content_digest, describe_files
from orbit_runner.data.images.headers import ImageSurvey
from orbit_runner.data.tfrecord.source import (
    IMAGE,
    LABEL,
    Blocks,
    RecordDataset,
    join_blocks,
    joined_record_fields,
    record_arguments,
    shape_of_record,
)
from orbit_runner.errors import DataError

_RECORDS_AT_ONCE = 64


@dataclasses.dataclass(frozen=True, eq=False)
class ArrayRecordSource(RecordDataset):
    """A dataset of images in ArrayRecord files, which are read by index, in any order.

    The fields that `RecordSource` also has have the same meaning.
    """

    name: str
    record_files: ArrayRecordFiles
    image_shape: tuple[int, int, int]
    mean: tuple[float, ...] = (127.5,)
    std: tuple[float, ...] = (127.5,)
    image_key: str = IMAGE
    label_key: str = LABEL
    label_offset: int = 0
    labels: tuple[str, ...] | None = None
    part: tuple[int, int] | None = None
    # The records of this part that are used, ascending, int64 [n]; None for all.
    rows: np.ndarray | None = None
    survey: ImageSurvey | None = None

    stored = "in ArrayRecord files"
    graph_reader = "orbit_runner.data.array_record.pipeline:ArrayRecordReader"

    @property
    def files(self) -> tuple[Path, ...]:  # type: ignore[override]
        """The files, in the order in which records are numbered."""
        return self.record_files.paths

    @property
    def size(self) -> int:
        """The number of records that are used."""
        return int(self.blocks.records.sum())

    @functools.cached_property
    def blocks(self) -> Blocks:  # type: ignore[override]
        """The used records that follow each other, as blocks, whose `offset` and `length` are 0."""
        blocks = self._file_blocks()
        return blocks if self.rows is None else _blocks_of(self.rows, blocks)

    def _file_blocks(self) -> Blocks:
        """Returns the records of each file that are in the part, as one block."""
        counts = np.array(self.record_files.counts, np.int64)
        firsts = np.cumsum(counts) - counts
        start, stop = self.part or (0, int(counts.sum()))
        begin = np.maximum(start, firsts)
        records = np.minimum(stop, firsts + counts) - begin
        (file,) = np.nonzero(records > 0)
        zeros = np.zeros(len(file), np.int64)
        return Blocks(
            file=file,
            offset=zeros,
            length=zeros,
            records=records[file],
            first=begin[file] - start,
            place=(begin - firsts)[file],
        )

    def read(self, numbers: Sequence[int]) -> list[bytes]:
        """Returns some records; raises `DataError` if one cannot be read."""
        places = [self.location(number) for number in numbers]
        rows: dict[int, list[int]] = {}
        for row, (file, _) in enumerate(places):
            rows.setdefault(file, []).append(row)
        ordered_records = [b""] * len(places)
        for file, of_file in rows.items():
            records = self.record_files.read(file, [places[row][1] for row in of_file])
            for row, record in zip(of_file, records, strict=True):
                ordered_records[row] = record
        return ordered_records

    def select(self, rows: np.ndarray) -> ArrayRecordSource:
        """Returns some of the records."""
        return dataclasses.replace(self, rows=rows if self.rows is None else self.rows[rows])

    def data_files(self) -> list[DataFile]:
        """Returns descriptions of the files."""
        return describe_files(self.files, content_digest)

    def record(self, number: int) -> tuple[dict[str, object], bytes]:
        """Returns file and number of a record, and the record."""
        file, record = self.location(number)
        return {"file": str(self.files[file]), "record": record}, self.read([number])[0]

    def records(self) -> Iterator[bytes]:
        """Yields all records."""
        yield from self.read(range(self.size))

    def named_records(self) -> Iterator[tuple[str, bytes]]:
        """Yields the names of all records and the records."""
        for start in range(0, self.size, _RECORDS_AT_ONCE):
            part = range(start, min(start + _RECORDS_AT_ONCE, self.size))
            for number, record in zip(part, self.read(part), strict=True):
                yield self.example_name(number), record

    def join(self, datasets: Sequence[ArrayRecordSource]) -> JoinedArrayRecords:
        """Returns the ArrayRecord files of several datasets."""
        files = [dataset.record_files for dataset in datasets]
        for record_files in files:
            record_files.close()  # The joined dataset opens the files itself.
        return JoinedArrayRecords(
            **joined_record_fields(datasets),
            record_files=ArrayRecordFiles(
                [path for record_files in files for path in record_files.paths],
                [count for record_files in files for count in record_files.counts],
            ),
        )


@dataclasses.dataclass(frozen=True, eq=False)
class JoinedArrayRecords(ArrayRecordSource):
    """The records of several datasets, one after the other."""

    sources: tuple[ArrayRecordSource, ...] = ()
    # The dataset of the mixture that each record comes from, integers [n].
    origins: np.ndarray | None = None

    @functools.cached_property
    def blocks(self) -> Blocks:  # type: ignore[override]
        """The records of each file that are used, as one block."""
        return join_blocks([(source.blocks, len(source.files)) for source in self.sources])


def _blocks_of(rows: np.ndarray, blocks: Blocks) -> Blocks:
    """Returns some records of blocks, as blocks of those that follow each other in a file."""
    block = np.searchsorted(blocks.first, rows, side="right") - 1
    file = blocks.file[block]
    place = rows - blocks.first[block] + blocks.place[block]
    follows = (np.diff(file) == 0) & (np.diff(place) == 1)
    first = np.concatenate([np.zeros(1, np.int64), np.flatnonzero(~follows) + 1])
    zeros = np.zeros(len(first), np.int64)
    return Blocks(
        file=file[first],
        offset=zeros,
        length=zeros,
        records=np.diff(first, append=len(rows)),
        first=first,
        place=place[first],
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
) -> ArrayRecordSource:
    """Returns the records of ArrayRecord files of tf.Example.

    For the arguments and the errors, see `orbit_runner.data.tfrecord.source.load`.
    """
    if split:
        raise DataError(
            f"array_record: got split {split!r}, expected none: input_path specifies the files",
            field="split",
            code="unknown-part",
        )
    files = named_files("array_record", data_dir, input_path)
    if not files:
        raise DataError(
            "array_record: no files are specified; set input_path, for example to train-*",
            field="input_path",
            code="not-set",
        )
    records = ArrayRecordFiles(files)
    return ArrayRecordSource(
        "array_record",
        records,
        first_shape("array_record", records, (image_key, label_key), any_size),
        image_key=image_key,
        label_key=label_key,
        label_offset=label_offset,
    )


def first_shape(
    name: str, records: ArrayRecordFiles, keys: tuple[str, str], any_size: bool = False
) -> tuple[int, int, int]:
    """Returns the height, width and channels of the first image.

    For the arguments and the errors, see `orbit_runner.data.tfrecord.source.first_shape`.
    """
    file = next((file for file, count in enumerate(records.counts) if count), None)
    if file is None:
        first = records.paths[0]
        count = len(records.paths)
        raise DataError(
            f"{name}: no records found (files: {count}, such as {first})",
            field="input_path",
            code="empty-data",
        )
    where = f"{records.paths[file]}: record 0"
    return shape_of_record(where, records.read(file, [0])[0], *keys, any_size)


IMAGES = Reader(load, record_arguments)
