"""Finds the records of TFRecord files by their frames, without reading their data; only once."""

from __future__ import annotations

import array
import dataclasses
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from orbit_runner.data.disk_cache import Values, cached, file_status
from orbit_runner.errors import DataError
from orbit_runner.utils.log import Progress

# A frame is the length and its checksum before the data, and the checksum of the data after it.
HEAD_BYTES, TAIL_BYTES = 12, 4
FRAME_BYTES = HEAD_BYTES + TAIL_BYTES
# With this buffer size, small records are read with the frames, and large ones are skipped.
_BUFFER_BYTES = 2**14
_THREADS = 16
_GZIP = b"\x1f\x8b"


@dataclasses.dataclass(frozen=True, eq=False)
class FileIndex:
    """The positions of the records of a file."""

    offsets: np.ndarray  # First byte of each record, and the end of the file: int64 [records + 1].
    # SHA-256 of the frames of all records. It changes with the contents because frames include the
    # checksums of the data, but the data need not be read.
    digest: str = ""

    @property
    def records(self) -> int:
        """The number of records."""
        return len(self.offsets) - 1

    def read(self, path: Path, records: Iterable[int]) -> Iterator[bytes]:
        """Yields the data of records of the file, without comparing checksums."""
        try:
            with path.open("rb") as file:
                for record in records:
                    start, end = self.offsets[record : record + 2].tolist()
                    file.seek(start + HEAD_BYTES)
                    yield file.read(end - start - FRAME_BYTES)
        except OSError as error:
            raise unreadable_error(path, error) from None


def scan(path: Path) -> FileIndex:
    """Returns the index of an uncompressed file; reads only its frames.

    The format is described at
    https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details. An empty file
    has no records. Raises DataError if the file cannot be read, is truncated or gzipped. TensorFlow
    compares the checksums when it reads the records.
    """
    starts = array.array("q", [0])
    end = 0
    digest = hashlib.sha256()
    try:
        with path.open("rb", buffering=_BUFFER_BYTES) as file:
            size = os.fstat(file.fileno()).st_size
            while end < size:
                head = file.read(HEAD_BYTES)
                end += FRAME_BYTES + int.from_bytes(head[:8], "little")
                if end > size:
                    break
                starts.append(end)
                file.seek(end - TAIL_BYTES)
                digest.update(head + file.read(TAIL_BYTES))
    except OSError as error:
        raise unreadable_error(path, error) from None
    if end > size:
        problem = (
            f"got {size} bytes, expected at least {end}: the record that starts at byte "
            f"{starts[-1]} is truncated, or its length is damaged"
        )
        if len(starts) == 1 and head[:2] == _GZIP:
            problem = "is gzipped; decompress it"
        raise DataError(f"{path}: {problem}", field="input_path", code="damaged-file")
    return FileIndex(np.array(starts, np.int64), digest.hexdigest())


def index_files(paths: Sequence[Path]) -> list[FileIndex]:
    """Returns the indexes of the files, in order; logs progress if this takes long.

    Raises DataError if a file cannot be read or is damaged.
    """
    indexes: list[FileIndex] = []
    progress = Progress("counting records")
    pool = ThreadPoolExecutor(_THREADS)
    try:
        for index in pool.map(index_file, paths):
            indexes.append(index)
            progress(f"{len(indexes):,} of {len(paths):,} files")
    finally:
        pool.shutdown(cancel_futures=True)
    return indexes


def index_file(path: Path) -> FileIndex:
    """Returns the index of a file, from the cache if the file has not changed.

    Raises DataError if the file cannot be read or is damaged.
    """
    file = file_status(path, "input_path")

    def scan_file() -> Values:
        return dataclasses.asdict(scan(Path(file.path)))

    # Always kept, because there may be a thousand files.
    return FileIndex(**cached("tfrecord", "offsets", scan_file, [file], kept_seconds=0.0))


def unreadable_error(path: Path, error: OSError) -> DataError:
    """Returns the error for a file that cannot be read."""
    return DataError(
        f"{path}: cannot be read ({error})", field="input_path", code="unreadable-file"
    )
