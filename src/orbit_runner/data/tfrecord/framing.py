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
# How many lengths are compared with their checksums at once. A file of zeros has many.
_LENGTHS_AT_ONCE = 2**14
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
    has no records. Raises DataError if the file cannot be read, is truncated or is not a TFRecord
    file.
    """
    starts = array.array("q", [0])
    heads = bytearray()
    checked = end = 0
    digest = hashlib.sha256()
    try:
        with path.open("rb", buffering=_BUFFER_BYTES) as file:
            size = os.fstat(file.fileno()).st_size
            while end < size:
                head = file.read(HEAD_BYTES)
                heads += head
                end += FRAME_BYTES + int.from_bytes(head[:8], "little")
                if end > size:
                    break
                starts.append(end)
                file.seek(end - TAIL_BYTES)
                digest.update(head + file.read(TAIL_BYTES))
                if len(heads) == _LENGTHS_AT_ONCE * HEAD_BYTES:
                    _check_lengths(path, starts[checked:], heads)
                    checked = len(starts) - 1
                    heads.clear()
    except OSError as error:
        raise unreadable_error(path, error) from None
    # Checked first, because a damaged length makes the record seem to be truncated.
    _check_lengths(path, starts[checked:], heads)
    if end > size:
        raise DataError(
            f"{path}: got {size} bytes, expected at least {end}: the record that starts at byte "
            f"{starts[-1]} is truncated",
            field="input_path",
            code="damaged-file",
        )
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


def _check_lengths(path: Path, starts: Sequence[int], heads: bytearray) -> None:
    complete_bytes = len(heads) // HEAD_BYTES * HEAD_BYTES
    table = np.frombuffer(heads, np.uint8, complete_bytes).reshape(-1, HEAD_BYTES)
    stored = np.ascontiguousarray(table[:, 8:]).view("<u4")[:, 0]
    wrong = masked_crc32c(table[:, :8]) != stored
    if wrong.any():
        start = starts[int(np.argmax(wrong))]
        hint = "; the file is gzipped: decompress it" if heads[:2] == _GZIP and not start else ""
        raise DataError(
            f"{path}: no valid record at byte {start}: the length does not match its "
            f"checksum{hint}",
            field="input_path",
            code="damaged-file",
        )


def masked_crc32c(rows: np.ndarray) -> np.ndarray:
    """Returns the TFRecord checksum of each of `rows`, uint8 [n, bytes]: uint32 [n].

    It is CRC-32C (RFC 3720), rotated and with a constant added.
    """
    crc = np.full(len(rows), 0xFFFFFFFF, np.uint32)
    for column in rows.T:
        crc = _TABLE[(crc ^ column) & 0xFF] ^ (crc >> 8)
    crc = ~crc
    return (crc >> 15 | crc << 17) + np.uint32(0xA282EAD8)


def _make_crc_table() -> np.ndarray:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = table >> 1 ^ np.where(table & 1, np.uint32(0x82F63B78), np.uint32(0))
    return table


_TABLE = _make_crc_table()
