"""Keeps on disk what takes long to compute from files, until the files change.

An entry is a file: a checksum of the rest, a line of JSON, and arrays, which are mapped into
memory. An entry that is damaged, or whose files have changed, is computed again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from orbit_runner.errors import DataError
from orbit_runner.storage.paths import cache_directory
from orbit_runner.utils.files import write_atomically

# Increase this if a change makes the stored values of any kind mean something else.
_VERSION = 3
# What was computed faster is not worth a file.
KEPT_SECONDS = 0.2
_ALIGNED = 64
# Smaller entries are read: a mapped file stays open, and there may be thousands of them.
_MAPPED_BYTES = 2**20

Values = dict[str, Any]


class FileStatus(NamedTuple):
    """What tells whether a file has changed."""

    path: str
    bytes: int
    mtime_ns: int


def file_status(path: str | Path, field: str = "") -> FileStatus:
    """Returns the status of a file. Raises `DataError` of a setting if it cannot be read."""
    name = os.path.abspath(path)
    try:
        status = os.stat(name)
    except OSError as error:
        raise DataError(
            f"{name}: cannot be read ({error.strerror})", field=field, code="unreadable-file"
        ) from None
    return FileStatus(name, status.st_size, status.st_mtime_ns)


def cached(
    kind: str,
    key: object,
    make: Callable[[], Values],
    files: Sequence[FileStatus] = (),
    *,
    kept_seconds: float | None = None,
) -> Values:
    """Returns what `make` returns, from the cache if it is there.

    Args:
        kind: The subdirectory of the cache.
        key: Everything that the values depend on besides the files, as JSON values.
        make: Computes the values by name: JSON values and NumPy arrays.
        files: The files that it reads.
        kept_seconds: The values are kept if computing them took longer, by default `KEPT_SECONDS`.
    """
    entry = CacheEntry(kind, key, files)
    values = entry.read()
    if values is None:
        began = time.monotonic()
        values = make()
        if time.monotonic() - began > (KEPT_SECONDS if kept_seconds is None else kept_seconds):
            entry.write(values)
    return values


class CacheEntry:
    """An entry of the cache; the arguments are those of `cached`."""

    def __init__(self, kind: str, key: object, files: Sequence[FileStatus] = ()) -> None:
        # Sizes and times are not part of the name, so that a changed file replaces its entry.
        name = _digest([key, [file.path for file in files]])
        self._key = _digest([_VERSION, key, files])
        self.path = cache_directory(kind) / name[:32]

    def read(self) -> Values | None:
        """Returns the values, or None if there are none, or if a file has changed."""
        try:
            with self.path.open("rb") as file:
                checksum, head = file.readline(), file.readline()
            header = json.loads(head)
            if header["key"] != self._key:
                return None
            size = self.path.stat().st_size
            if size < _MAPPED_BYTES:
                space = np.empty(size + _ALIGNED, np.uint8)
                content = space[-space.ctypes.data % _ALIGNED :][:size]
                content[:] = np.fromfile(self.path, np.uint8)
                content.flags.writeable = False
            else:
                content = np.memmap(self.path, np.uint8, "r")
            if zlib.crc32(content[len(checksum) :].data) != int(checksum, 16):
                return None
            values: Values = header["values"]
            start = len(checksum) + len(head)
            for name, (dtype, shape, offset) in header["arrays"].items():
                values[name] = np.ndarray(shape, dtype, content.data, start + offset)
            return values
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, values: Values) -> None:
        """Stores values. If the cache cannot be written, the next run only takes longer."""
        arrays: dict[str, tuple[str, tuple[int, ...], int]] = {}
        chunks: list[bytes | memoryview] = []
        offset = 0
        for name, value in values.items():
            if isinstance(value, np.ndarray):
                arrays[name] = (value.dtype.str, value.shape, offset)
                padding = -value.nbytes % _ALIGNED
                chunks += [np.ascontiguousarray(value).data, bytes(padding)]
                offset += value.nbytes + padding
        others = {name: value for name, value in values.items() if name not in arrays}
        head = json.dumps({"key": self._key, "values": others, "arrays": arrays}).encode()
        checksum_bytes = len(_format_checksum(0))
        head += b" " * (-(checksum_bytes + len(head) + 1) % _ALIGNED) + b"\n"
        checksum = zlib.crc32(head)
        for chunk in chunks:
            checksum = zlib.crc32(chunk, checksum)
        with contextlib.suppress(OSError):
            write_atomically(self.path, b"".join([_format_checksum(checksum), head, *chunks]))


def _format_checksum(checksum: int) -> bytes:
    return b"%08x\n" % checksum


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
