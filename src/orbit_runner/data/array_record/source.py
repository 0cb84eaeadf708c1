"""Images in ArrayRecord files of tf.Example; does not import TensorFlow, to report errors early."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from orbit_runner.data.array_record.files import ArrayRecordFiles
from orbit_runner.data.fingerprint import DataFile, content_digest, describe_files
from orbit_runner.data.tfrecord.source import ExampleStore, load_records, places_of_records

_RECORDS_AT_ONCE = 256


@dataclasses.dataclass(frozen=True, eq=False)
class ArrayRecordStore(ExampleStore):
    """Images in ArrayRecord files, which are read by index, in any order."""

    record_files: ArrayRecordFiles = ArrayRecordFiles(())

    stored = "in ArrayRecord files"
    graph_reader = "orbit_runner.data.tfrecord.pipeline:ArrayRecordReader"

    @classmethod
    def open(
        cls, files: Sequence[Path], image_key: str, label_key: str, label_offset: int = 0
    ) -> ArrayRecordStore:
        """Returns the records of ArrayRecord files. Raises `DataError` if one is damaged."""
        records = ArrayRecordFiles(files)
        places = places_of_records(files, records.counts)
        return cls(records.paths, places, image_key, label_key, label_offset, records)

    def read(self, rows: Sequence[int]) -> Iterator[bytes]:
        """Yields records, several of which are read at once."""
        for start in range(0, len(rows), _RECORDS_AT_ONCE):
            part = np.asarray(rows[start : start + _RECORDS_AT_ONCE], np.int64)
            files, records = self.places.locate(part)
            contents = [b""] * len(part)
            for file in np.unique(files).tolist():
                indices = np.flatnonzero(files == file).tolist()
                of_file = self.record_files.read(file, records[indices].tolist())
                for index, record in zip(indices, of_file, strict=True):
                    contents[index] = record
            yield from contents

    def data_files(self, rows: np.ndarray) -> list[DataFile]:
        """Returns descriptions of the files."""
        return describe_files(self.files, content_digest)

    def join(self, stores: Sequence[ArrayRecordStore]) -> ArrayRecordStore:
        """Returns the ArrayRecord files of several stores."""
        for store in stores:
            store.record_files.close()  # The joined store opens the files itself.
        paths = [path for store in stores for path in store.record_files.paths]
        counts = [count for store in stores for count in store.record_files.counts]
        return ArrayRecordStore(
            **self.joined_fields(stores), record_files=ArrayRecordFiles(paths, counts)
        )


load = functools.partial(load_records, "array_record", ArrayRecordStore)
