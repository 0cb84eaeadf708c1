"""ArrayRecord files, whose records are read by index, and images in them. No TensorFlow."""

from __future__ import annotations

import collections
import dataclasses
import functools
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from orbit_runner.data.fingerprint import DataFile, content_digest, describe_files
from orbit_runner.data.tfrecord.source import ExampleImages, load_records, places_of_records
from orbit_runner.errors import DataError, first_line

if TYPE_CHECKING:
    from array_record.python.array_record_module import ArrayRecordReader
    from typing_extensions import Self

# Each open file takes a descriptor, of which processes have 1,024 by default, and a buffer.
_OPEN_FILES = 256
_BUFFER_BYTES = 2**15
_RECORDS_AT_ONCE = 256


class ArrayRecordFiles:
    """ArrayRecord files, opened when they are first read. Any thread may read.

    Attributes:
        paths: The files.
        counts: The number of records of each file, which is stored at its end.
    """

    def __init__(self, paths: Sequence[Path], counts: Sequence[int] | None = None) -> None:
        """Opens all files, unless their numbers of records, `counts`, are known.

        Raises `DataError` if a file is not an ArrayRecord file or cannot be read.
        """
        self.paths = tuple(paths)
        self._readers: collections.OrderedDict[int, ArrayRecordReader] = collections.OrderedDict()
        self._lock = threading.Lock()
        if counts is None:
            counts = [self._count_records(number) for number in range(len(self.paths))]
        self.counts = tuple(counts)

    def read(self, file: int, records: Sequence[int]) -> list[bytes]:
        """Returns some records of a file, in the order of `records`.

        Raises `DataError` that names the file if one cannot be read.
        """
        with self._lock:
            try:
                return list(self._reader(file).read(list(records)))
            except RuntimeError as error:
                self._readers.pop(file)  # A reader that has failed once fails for all records.
                raise _unreadable_error(self.paths[file], error) from None

    def close(self) -> None:
        """Closes the files, which are opened again when they are read."""
        with self._lock:
            while self._readers:
                self._readers.popitem()[1].close()

    def _count_records(self, file: int) -> int:
        path = self.paths[file]
        try:
            path.open("rb").close()
            reader = self._reader(file)
            if not reader.ok():
                reader.read([0])  # Raises the error.
            return int(reader.num_records())
        except (OSError, RuntimeError) as error:
            raise _unreadable_error(path, error) from None

    def _reader(self, file: int) -> ArrayRecordReader:
        if file in self._readers:
            self._readers.move_to_end(file)
        else:
            self._readers[file] = _open_reader(self.paths[file])
            if len(self._readers) > _OPEN_FILES:
                self._readers.popitem(last=False)[1].close()
        return self._readers[file]


def _open_reader(path: Path) -> ArrayRecordReader:
    # Records are read in any order.
    options = "readahead_buffer_size:0"
    return _reader_class()(str(path), options=options, file_reader_buffer_size=_BUFFER_BYTES)


def _unreadable_error(path: Path, error: Exception) -> DataError:
    return DataError(
        f"{path}: cannot be read as an ArrayRecord file: {first_line(error)}",
        field="input_path",
        code="damaged-file",
    )


@functools.cache
def _reader_class() -> type[ArrayRecordReader]:
    try:
        # Not the package's `ArrayRecordDataSource`, which defines flags and starts threads.
        from array_record.python.array_record_module import ArrayRecordReader
    except ImportError as error:
        raise DataError(
            f"array_record: cannot import the package array_record: {first_line(error)}\n"
            "install it: pip install array_record",
            field="source",
            code="missing-package",
        ) from None
    return ArrayRecordReader


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class ArrayRecordImages(ExampleImages):
    """Images in ArrayRecord files, which are read by index, in any order."""

    record_files: ArrayRecordFiles

    stored = "in ArrayRecord files"
    graph_reader = "orbit_runner.data.tfrecord.pipeline:ArrayRecordReader"

    @classmethod
    def open(cls, files: Sequence[Path], **fields: Any) -> Self:
        """Returns the records of ArrayRecord files. Raises `DataError` if one is damaged."""
        records = ArrayRecordFiles(files)
        places = places_of_records(files, records.counts)
        return cls(files=records.paths, places=places, record_files=records, **fields)

    def records(self, numbers: Sequence[int]) -> Iterator[bytes]:
        """Yields records, several of which are read at once."""
        for start in range(0, len(numbers), _RECORDS_AT_ONCE):
            part = np.asarray(numbers[start : start + _RECORDS_AT_ONCE], np.int64)
            files, records = self.places.locate(part)
            contents = [b""] * len(part)
            for file in np.unique(files).tolist():
                indices = np.flatnonzero(files == file).tolist()
                of_file = self.record_files.read(file, records[indices].tolist())
                for index, record in zip(indices, of_file, strict=True):
                    contents[index] = record
            yield from contents

    def data_files(self) -> list[DataFile]:
        """Returns descriptions of the files."""
        return describe_files(self.files, content_digest)

    def joined_rows(self, datasets: Sequence[ArrayRecordImages]) -> dict[str, Any]:
        """Returns the fields for the records of several datasets."""
        for dataset in datasets:
            dataset.record_files.close()  # The joined dataset opens the files itself.
        paths = [path for dataset in datasets for path in dataset.record_files.paths]
        counts = [count for dataset in datasets for count in dataset.record_files.counts]
        return super().joined_rows(datasets) | {"record_files": ArrayRecordFiles(paths, counts)}


load = functools.partial(load_records, "array_record", ArrayRecordImages)
