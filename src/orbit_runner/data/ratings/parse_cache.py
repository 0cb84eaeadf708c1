"""Caches the numbers parsed from large files, because parsing takes longer than reading."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from orbit_runner.utils.cache import cache_directory, write_shared_file

_FORMAT = 1
_SMALLEST_BYTES = 2**23


def load_or_parse(path: Path, make: Callable[[], np.ndarray], what: str) -> np.ndarray:
    """Returns the parsed file, int64 [k, n], from the cache if the file has not changed.

    The file must exist. `what` describes how it is parsed, and is part of the cache key. Files
    smaller than 8 MiB are not cached.
    """
    path, status = path.absolute(), path.stat()
    if status.st_size < _SMALLEST_BYTES:
        return make()
    key = {
        "path": os.fspath(path),
        "bytes": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "what": what,
        "format": _FORMAT,
    }
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:32]
    entry = cache_directory("ratings") / f"{name}.numbers"
    numbers = _read(entry, key)
    if numbers is None:
        numbers = make()
        # If the cache cannot be written, the next run only takes longer.
        with contextlib.suppress(OSError):
            _write(entry, key, numbers)
    return numbers


def _read(entry: Path, key: dict[str, Any]) -> np.ndarray | None:
    try:
        with entry.open("rb") as file:
            header = json.loads(file.readline())
            payload = file.read()
        if header["key"] != key or header["crc32"] != zlib.crc32(payload):
            return None
        return np.frombuffer(payload, header["dtype"]).reshape(header["shape"]).astype(np.int64)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(entry: Path, key: dict[str, Any], numbers: np.ndarray) -> None:
    dtype = "<i4" if numbers.max() < 2**31 else "<i8"
    payload = numbers.astype(dtype).tobytes()
    header = {"key": key, "dtype": dtype, "shape": numbers.shape, "crc32": zlib.crc32(payload)}
    write_shared_file(entry, json.dumps(header).encode() + b"\n" + payload)
