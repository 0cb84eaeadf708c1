"""Finds the records of TFRecord files by their frames, without reading their data; only once."""

from __future__ import annotations

import array
import dataclasses
import functools
import hashlib
import os
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import numpy as np

from orbit_runner.data.disk_cache import Values, cached, file_status
from orbit_runner.data.fingerprint import DataFile, describe_files
from orbit_runner.errors import DataError
from orbit_runner.utils.log import detail

BLOCK_RECORDS = 64
# A frame is the length and its checksum before the data, and the checksum of the data after it.
HEAD_BYTES, TAIL_BYTES = 12, 4
_FRAME = HEAD_BYTES + TAIL_BYTES
# With this buffer size, small records are read with the frames, and large ones are skipped.
_BUFFER_BYTES = 2**14
_THREADS = 16
_PATIENCE_SECONDS = 2.0
_GZIP = b"\x1f\x8b"


@dataclasses.dataclass(frozen=True, eq=False)
class FileIndex:
    """The positions of the blocks of a file; each but the last has `BLOCK_RECORDS` records.

    If `scan` counted each record as a block, each block has one record.
    """

    records: int
    offsets: np.ndarray  # First byte of each block, and the end of the file: int64 [blocks + 1].
    # SHA-256 of the frames of all records. It changes with the contents because frames include the
    # checksums of the data, but the data need not be read.
    digest: str = ""


def scan(path: Path, *, per_record: bool = False) -> FileIndex:
    """Returns the index of an uncompressed file; reads only its frames.

    If `per_record` is true, each record is a block of its own.

    The format is described at
    https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details. An empty file
    has no records. Raises DataError if the file cannot be read, is truncated or is not a TFRecord
    file.
    """
    records = 0
    offsets = array.array("q")
    end = 0
    digest = hashlib.sha256()
    try:
        with path.open("rb", buffering=_BUFFER_BYTES) as file:
            size = os.fstat(file.fileno()).st_size
            while end < size:
                starts, frames = _read_block(path, file, end, size)
                records = records + len(starts) - 1
                end = starts[-1]
                offsets.extend(starts[:-1] if per_record else starts[:1])
                digest.update(frames)
    except OSError as error:
        raise unreadable_error(path, error) from None
    offsets.append(end)
    return FileIndex(records, np.array(offsets, np.int64), digest.hexdigest())


def index_files(paths: Sequence[Path]) -> list[FileIndex]:
    """Returns the indexes of the files, in order; logs progress if this takes long.

    Raises DataError if a file cannot be read or is damaged.
    """
    return _index_all(index_file, paths, "counting records")


def record_offsets(paths: Sequence[Path]) -> list[np.ndarray]:
    """Returns the first byte of each record of each file, and its end: int64 [records + 1].

    Logs progress if this takes long. Raises DataError if a file cannot be read or is damaged.
    """
    indexes = _index_all(functools.partial(index_file, per_record=True), paths, "finding records")
    return [index.offsets for index in indexes]


def _index_all(
    index: Callable[[Path], FileIndex], paths: Sequence[Path], activity: str
) -> list[FileIndex]:
    indexes: list[FileIndex] = []
    reported = time.monotonic()
    pool = ThreadPoolExecutor(_THREADS)
    try:
        for file_index in pool.map(index, paths):
            indexes.append(file_index)
            if time.monotonic() - reported > _PATIENCE_SECONDS:
                reported = time.monotonic()
                so_far = f"{activity}: {len(indexes):,} of {len(paths):,} files"
                detail(so_far, len(indexes) / len(paths))
    finally:
        pool.shutdown(cancel_futures=True)
    return indexes


def index_file(path: Path, *, per_record: bool = False) -> FileIndex:
    """Returns the index of a file, from the cache if the file has not changed.

    If `per_record` is true, each record is a block of its own.

    Raises DataError if the file cannot be read or is damaged.
    """
    file = file_status(path, "input_path")

    def scan_file() -> Values:
        return dataclasses.asdict(scan(Path(file.path), per_record=per_record))

    # Always kept, because there may be a thousand files.
    key = "records" if per_record else f"blocks of {BLOCK_RECORDS}"
    return FileIndex(**cached("tfrecord", key, scan_file, [file], kept_seconds=0.0))


def record_files(paths: Sequence[Path], indexes: Sequence[FileIndex]) -> list[DataFile]:
    """Returns the fingerprints of files from the digests of their indexes; reads no file."""
    digests = {
        path.absolute(): f"records:{index.digest}"
        for path, index in zip(paths, indexes, strict=True)
    }
    return describe_files(paths, lambda path: digests[path])


def first_record(path: Path) -> bytes:
    """Returns the data of the first record of a file that has been scanned and is not empty."""
    return record_data(path, 0)


def record_starts(path: Path, offset: int) -> list[int]:
    """Returns the first byte of each record of a block, and the end of the last record.

    The block starts at byte `offset` of a file that has been scanned. Raises DataError if the file
    cannot be read or has changed.
    """
    try:
        with path.open("rb", buffering=_BUFFER_BYTES) as file:
            return _read_block(path, file, offset, os.fstat(file.fileno()).st_size)[0]
    except OSError as error:
        raise unreadable_error(path, error) from None


def record_data(path: Path, start: int) -> bytes:
    """Returns the data of the record that starts at byte `start` of a file that was scanned."""
    try:
        with path.open("rb") as file:
            file.seek(start)
            (length,) = struct.unpack_from("<Q", file.read(HEAD_BYTES))
            return file.read(length)
    except OSError as error:
        raise unreadable_error(path, error) from None


def records_of(path: Path) -> Iterator[bytes]:
    """Yields the data of all records of a file that was scanned, without comparing checksums."""
    try:
        with path.open("rb") as file:
            while head := file.read(HEAD_BYTES):
                yield file.read(struct.unpack_from("<Q", head)[0])
                file.seek(TAIL_BYTES, os.SEEK_CUR)
    except OSError as error:
        raise unreadable_error(path, error) from None


def unreadable_error(path: Path, error: OSError) -> DataError:
    """Returns the error for a file that cannot be read."""
    return DataError(
        f"{path}: cannot be read ({error})", field="input_path", code="unreadable-file"
    )


def _read_block(path: Path, file: BinaryIO, start: int, size: int) -> tuple[list[int], bytes]:
    """Returns the first byte of each record of a block and the end of the last, and the frames."""
    starts = [start]
    heads = []
    tails = []
    file.seek(start)
    while len(starts) <= BLOCK_RECORDS and starts[-1] < size:
        heads.append(file.read(HEAD_BYTES))
        starts.append(starts[-1] + _FRAME + int.from_bytes(heads[-1][:8], "little"))
        if starts[-1] > size:
            break
        file.seek(starts[-1] - TAIL_BYTES)
        tails.append(file.read(TAIL_BYTES))
    # Checked first, because a damaged length makes the record seem to be truncated.
    _check_lengths(path, starts, heads)
    if starts[-1] > size:
        raise DataError(
            f"{path}: got {size} bytes, expected at least {starts[-1]}: the record that starts at "
            f"byte {starts[-2]} is truncated",
            field="input_path",
            code="damaged-file",
        )
    frames = b"".join(head + tail for head, tail in zip(heads, tails, strict=True))
    return starts, frames


def _check_lengths(path: Path, starts: list[int], heads: list[bytes]) -> None:
    whole = [head for head in heads if len(head) == HEAD_BYTES]
    table = np.frombuffer(b"".join(whole), np.uint8).reshape(-1, HEAD_BYTES)
    stored = np.ascontiguousarray(table[:, 8:]).view("<u4")[:, 0]
    wrong = masked_crc32c(table[:, :8]) != stored
    if wrong.any():
        start = starts[int(np.argmax(wrong))]
        hint = "; the file is gzipped: decompress it" if heads[0][:2] == _GZIP and not start else ""
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
    return _mask_crc(~crc)


def _mask_crc(crc: np.ndarray) -> np.ndarray:
    return (crc >> 15 | crc << 17) + np.uint32(0xA282EAD8)


def _make_crc_table() -> np.ndarray:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = table >> 1 ^ np.where(table & 1, np.uint32(0x82F63B78), np.uint32(0))
    return table


_TABLE = _make_crc_table()
