"""Caches the indexes of files between runs, so that each file is scanned only once."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import time
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from orbit_runner.data.tfrecord.framing import BLOCK_RECORDS, FileIndex, scan, unreadable
from orbit_runner.utils.cache import cache_folder, write_aside
from orbit_runner.utils.log import detail

_THREADS = 16
_PATIENCE_SECONDS = 2.0


def index_files(paths: Sequence[Path]) -> list[FileIndex]:
    """Returns the indexes of the files, in order; logs progress if this takes long.

    Raises DataError if a file cannot be read or is damaged.
    """
    return _of_files(index_file, paths, "counting records")


def record_offsets(paths: Sequence[Path]) -> list[np.ndarray]:
    """Returns the first byte of each record of each file, and its end: int64 [records + 1].

    Logs progress if this takes long. Raises DataError if a file cannot be read or is damaged.
    """
    indexes = _of_files(functools.partial(index_file, each=True), paths, "finding records")
    return [index.offsets for index in indexes]


def _of_files(
    index: Callable[[Path], FileIndex], paths: Sequence[Path], doing: str
) -> list[FileIndex]:
    found: list[FileIndex] = []
    told = time.monotonic()
    pool = ThreadPoolExecutor(_THREADS)
    try:
        for one in pool.map(index, paths):
            found.append(one)
            if time.monotonic() - told > _PATIENCE_SECONDS:
                told = time.monotonic()
                so_far = f"{doing}: {len(found):,} of {len(paths):,} files"
                detail(so_far, len(found) / len(paths))
    finally:
        pool.shutdown(cancel_futures=True)
    return found


def index_file(path: Path, *, each: bool = False) -> FileIndex:
    """Returns the index of a file, from the cache if the file has not changed.

    If `each` is true, each record is a block of its own.

    Raises DataError if the file cannot be read or is damaged.
    """
    path = path.absolute()
    try:
        status = path.stat()
    except OSError as error:
        raise unreadable(path, error) from None
    key = {
        "path": os.fspath(path),
        "bytes": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "block_records": 1 if each else BLOCK_RECORDS,
    }
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:32]
    entry = cache_folder("tfrecord") / f"{name}.{'records' if each else 'index'}"
    index = _read(entry, key)
    if index is None:
        index = scan(path, each=each)
        # If the cache cannot be written, the next run only takes longer.
        with contextlib.suppress(OSError):
            _write(entry, key, index)
    return index


def _read(entry: Path, key: dict[str, Any]) -> FileIndex | None:
    try:
        head, _, payload = entry.read_bytes().partition(b"\n")
        said = json.loads(head)
        if said["key"] != key or said["crc32"] != zlib.crc32(payload):
            return None
        offsets = np.frombuffer(payload, "<i8").astype(np.int64)
        return FileIndex(said["records"], offsets, said["digest"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(entry: Path, key: dict[str, Any], index: FileIndex) -> None:
    payload = index.offsets.astype("<i8").tobytes()
    said = {
        "key": key,
        "records": index.records,
        "crc32": zlib.crc32(payload),
        "digest": index.digest,
    }
    write_aside(entry, json.dumps(said).encode() + b"\n" + payload)
