"""Reads IDX, the file format of MNIST: a big-endian header, then bytes."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np

from orbit_runner.errors import DataError

_MAGIC = bytes((0, 0, 8))
_PIECE_BYTES = 2**24


def read_idx(path: Path, rank: int, *, field: str) -> np.ndarray:
    """Returns the values of an IDX file of bytes: read-only uint8 with `rank` dimensions.

    The format is that of http://yann.lecun.com/exdb/mnist: two zero bytes, 8 for unsigned bytes,
    the number of dimensions, each dimension as four bytes, then the values. A file whose name ends
    in `.gz` is decompressed.

    Raises a `DataError` that names the setting `field` if the file has another rank or size.
    """
    content = _read_content(path, field)
    header = 4 + 4 * rank
    magic = bytes((0, 0, 8, rank))
    if content[:4] != magic:
        raise DataError(
            f"{path}: starts with 0x{content[:4].hex()}, expected 0x{magic.hex()} (IDX, uint8, "
            f"rank {rank})",
            field=field,
        )
    if len(content) < header:
        raise DataError(
            f"{path}: got {len(content)} bytes, expected at least {header}", field=field
        )
    shape = struct.unpack(f">{rank}I", content[4:header])
    return _parse_values(path, content, header, shape, field)


def _parse_values(
    path: Path, content: bytes, header: int, shape: tuple[int, ...], field: str
) -> np.ndarray:
    if min(shape) < 1:
        raise DataError(f"{path}: got shape {list(shape)}, expected no dimension of 0", field=field)
    # Not NumPy's product, which dimensions of an invalid header could overflow.
    expected = header + math.prod(shape)
    if len(content) != expected:
        raise DataError(
            f"{path}: got {len(content)} bytes, expected {expected} for shape {list(shape)}",
            field=field,
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def _read_content(path: Path, field: str) -> bytes:
    try:
        if path.suffix != ".gz":
            return path.read_bytes()
        with gzip.open(path) as file:
            return _decompress(file)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read ({error})", field=field) from None


def _decompress(file: gzip.GzipFile) -> bytes:
    """Reads one byte more than the header promises: a small file may decompress to a huge one."""
    content = file.read(4)
    if content[:3] != _MAGIC or len(content) < 4:
        return content
    content += file.read(4 * content[3])
    sizes = struct.unpack(f">{len(content) // 4 - 1}I", content[4 : len(content) & ~3])
    left = math.prod(sizes) + 1
    parts = [content]
    while left > 0 and (part := file.read(min(left, _PIECE_BYTES))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
