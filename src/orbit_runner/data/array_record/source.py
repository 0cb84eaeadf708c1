"""Images in ArrayRecord files of tf.Example; does not import TensorFlow, to report errors early."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from orbit_runner.data.array_record.files import ArrayRecordFiles
from orbit_runner.data.dataset import Reader
from orbit_runner.data.fingerprint import DataFile, content_digest, describe_files
from orbit_runner.data.tfrecord.source import (
    IMAGE,
    LABEL,
    Blocks,
    RecordDataset,
    first_shape,
    record_arguments,
    record_paths,
)

_RECORDS_AT_ONCE = 64


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class ArrayRecordSource(RecordDataset):
    """A dataset of images in ArrayRecord files, which are read by index, in any order.

    A block is the used records of a file that follow each other.
    """

    record_files: ArrayRecordFiles

    stored = "in ArrayRecord files"
    graph_reader = "orbit_runner.data.tfrecord.pipeline:ArrayRecordReader"

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
        blocks = self.blocks
        block = np.searchsorted(blocks.first, rows, side="right") - 1
        file = blocks.file[block]
        place = rows - blocks.first[block] + blocks.place[block]
        follows = (np.diff(file) == 0) & (np.diff(place) == 1)
        first = np.append(0, np.flatnonzero(~follows) + 1)
        counts = np.diff(first, append=len(rows))
        return dataclasses.replace(self, blocks=Blocks.create(file[first], place[first], counts))

    def data_files(self) -> list[DataFile]:
        """Returns descriptions of the files."""
        return describe_files(self.files, content_digest)

    def record(self, number: int) -> tuple[dict[str, object], bytes]:
        """Returns file and number of a record, and the record."""
        file, record = self.location(number)
        return {"file": str(self.files[file]), "record": record}, self.read([number])[0]

    def records(self) -> Iterator[bytes]:
        """Yields all records."""
        for start in range(0, self.size, _RECORDS_AT_ONCE):
            yield from self.read(range(start, min(start + _RECORDS_AT_ONCE, self.size)))

    def join(self, datasets: Sequence[ArrayRecordSource]) -> ArrayRecordSource:
        """Returns the ArrayRecord files of several datasets."""
        files = [dataset.record_files for dataset in datasets]
        for record_files in files:
            record_files.close()  # The joined dataset opens the files itself.
        return ArrayRecordSource(
            **self.joined_record_fields(datasets),
            record_files=ArrayRecordFiles(
                [path for record_files in files for path in record_files.paths],
                [count for record_files in files for count in record_files.counts],
            ),
        )


def array_record_source(
    name: str,
    files: Sequence[Path],
    keys: tuple[str, str],
    part: tuple[int, int] | None = None,
    *,
    any_size: bool = False,
    **fields: Any,
) -> ArrayRecordSource:
    """Returns the records of ArrayRecord files.

    The arguments and the errors are those of `orbit_runner.data.tfrecord.source.record_source`.
    """
    records = ArrayRecordFiles(files)
    counts = np.array(records.counts, np.int64)
    firsts = np.cumsum(counts) - counts
    start, stop = part or (0, int(counts.sum()))
    begin = np.maximum(start, firsts)
    used = np.minimum(stop, firsts + counts) - begin
    return ArrayRecordSource(
        name=name,
        files=records.paths,
        record_files=records,
        blocks=Blocks.create(np.arange(len(counts)), begin - firsts, used),
        image_shape=first_shape(
            name,
            files,
            records.counts,
            lambda file: records.read(file, [0])[0],
            keys,
            any_size=any_size,
        ),
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
) -> ArrayRecordSource:
    """Returns the records of ArrayRecord files of tf.Example.

    For the arguments and the errors, see `orbit_runner.data.tfrecord.source.load`.
    """
    files = record_paths("array_record", split, data_dir, input_path)
    keys = (image_key, label_key)
    return array_record_source(
        "array_record", files, keys, any_size=any_size, label_offset=label_offset
    )


IMAGES = Reader(load, record_arguments)
