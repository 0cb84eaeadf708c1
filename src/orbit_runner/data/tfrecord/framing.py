"""Finds the records of a TFRecord file by their frames, without reading what is in them."""

from __future__ import annotations

import dataclasses
import os
import struct
from pathlib import Path
from typing import BinaryIO

import numpy as np

from orbit_runner.errors import DataError

BLOCK_RECORDS = 64
# A frame: length and its checksum in front of the data, the checksum of the data behind.
_HEAD, _FRAME = 12, 16
# Small records are read in passing, large ones are skipped.
_BUFFER_BYTES = 2**14
_GZIP = b"\x1f\x8b"


@dataclasses.dataclass(frozen=True, eq=False)
class FileIndex:
    """Where the blocks of a file lie; each has `BLOCK_RECORDS` records, the last one the rest.

    Attributes:
        records: Number of records.
        offsets: The first byte of each block and the end of the file, int64 [blocks + 1].
    """

    records: int
    offsets: np.ndarray


def scan(path: Path) -> FileIndex:
    """Walks through a file from frame to frame.

    The format is that of https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details.

    Args:
        path: The file, not compressed; empty for no records.

    Returns:
        Its index.

    Raises:
        DataError: The file cannot be read, is cut short, or is no TFRecord file.
    """
    records, offsets = 0, [0]
    try:
        with path.open("rb", buffering=_BUFFER_BYTES) as file:
            size = os.fstat(file.fileno()).st_size
            while offsets[-1] < size:
                starts = _block(path, file, offsets[-1], size)
                records += len(starts) - 1
                offsets.append(starts[-1])
    except OSError as error:
        raise unreadable(path, error) from None
    return FileIndex(records, np.array(offsets, np.int64))


def first_record(path: Path) -> bytes:
    """Reads the first record of a file that has been scanned.

    Args:
        path: The file.

    Returns:
        Its data.

    Raises:
        DataError: The file cannot be read.
    """
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack_from("<Q", file.read(_HEAD))
            return file.read(length)
    except OSError as error:
        raise unreadable(path, error) from None


def record_starts(path: Path, offset: int) -> list[int]:
    """Finds the records of a block in a file that has been scanned.

    Args:
        path: The file.
        offset: The first byte of the block.

    Returns:
        The first byte of each of its records, and the end of the last one.

    Raises:
        DataError: The file cannot be read, or has changed.
    """
    try:
        with path.open("rb", buffering=_BUFFER_BYTES) as file:
            return _block(path, file, offset, os.fstat(file.fileno()).st_size)
    except OSError as error:
        raise unreadable(path, error) from None


def unreadable(path: Path, error: OSError) -> DataError:
    """Returns the error for a file that cannot be read.

    Args:
        path: The file.
        error: What reading it raised.
    """
    return DataError(f"{path}: cannot be read ({error})", field="input_path")


def _block(path: Path, file: BinaryIO, start: int, size: int) -> list[int]:
    """Returns where the records of one block start, and where the last one ends."""
    starts, heads = [start], []
    while len(starts) <= BLOCK_RECORDS and starts[-1] < size:
        file.seek(starts[-1])
        heads.append(file.read(_HEAD))
        starts.append(starts[-1] + _FRAME + int.from_bytes(heads[-1][:8], "little"))
    # First, for a mangled length makes the record seem to be cut short.
    _check_lengths(path, starts, heads)
    if starts[-1] > size:
        raise DataError(
            f"{path}: got {size} bytes, expected {starts[-1]} or more, the end of the record that "
            f"starts at byte {starts[-2]}",
            field="input_path",
        )
    return starts


def _check_lengths(path: Path, starts: list[int], heads: list[bytes]) -> None:
    whole = [head for head in heads if len(head) == _HEAD]
    table = np.frombuffer(b"".join(whole), np.uint8).reshape(-1, _HEAD)
    stored = np.ascontiguousarray(table[:, 8:]).view("<u4")[:, 0]
    wrong = masked_crc32c(table[:, :8]) != stored
    if wrong.any():
        start = starts[int(np.argmax(wrong))]
        hint = "; unpack it, it is gzipped" if heads[0][:2] == _GZIP and not start else ""
        raise DataError(
            f"{path}: got no record at byte {start}, expected a length with its checksum{hint}",
            field="input_path",
        )


def masked_crc32c(rows: np.ndarray) -> np.ndarray:
    """Computes the checksum that TFRecord files have: CRC-32C (RFC 3720), rotated and shifted.

    Args:
        rows: uint8 [n, bytes].

    Returns:
        uint32 [n].
    """
    crc = np.full(len(rows), 0xFFFFFFFF, np.uint32)
    for column in rows.T:
        crc = _TABLE[(crc ^ column) & 0xFF] ^ (crc >> 8)
    crc = ~crc
    return (crc >> 15 | crc << 17) + np.uint32(0xA282EAD8)


def _crc_table() -> np.ndarray:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = table >> 1 ^ np.where(table & 1, np.uint32(0x82F63B78), np.uint32(0))
    return table


_TABLE = _crc_table()
