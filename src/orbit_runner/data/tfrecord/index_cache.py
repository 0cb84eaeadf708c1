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

import numpy as np

from orbit_runner.data.tfrecord.framing import BLOCK_RECORDS, FileIndex, scan, unreadable_error
from orbit_runner.utils.cache import cache_directory, write_shared_file
from orbit_runner.utils.log import detail

_THREADS = 16
_PATIENCE_SECONDS = 2.0


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
    path = path.absolute()
    try:
        status = path.stat()
    except OSError as error:
        raise unreadable_error(path, error) from None
    key = {
        "path": os.fspath(path),
        "bytes": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "block_records": 1 if per_record else BLOCK_RECORDS,
    }
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:32]
    entry = cache_directory("tfrecord") / f"{name}.{'records' if per_record else 'index'}"
    index = _read(entry, key)
    if index is None:
        index = scan(path, per_record=per_record)
        # If the cache cannot be written, the next run only takes longer.
        with contextlib.suppress(OSError):
            _write(entry, key, index)
    return index


def _read(entry: Path, key: dict[str, object]) -> FileIndex | None:
    try:
        head, _, payload = entry.read_bytes().partition(b"\n")
        header = json.loads(head)
        if header["key"] != key or header["crc32"] != zlib.crc32(payload):
            return None
        offsets = np.frombuffer(payload, "<i8").astype(np.int64)
        return FileIndex(header["records"], offsets, header["digest"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(entry: Path, key: dict[str, object], index: FileIndex) -> None:
    payload = index.offsets.astype("<i8").tobytes()
    header = {
        "key": key,
        "records": index.records,
        "crc32": zlib.crc32(payload),
        "digest": index.digest,
    }
    write_shared_file(entry, json.dumps(header).encode() + b"\n" + payload)
