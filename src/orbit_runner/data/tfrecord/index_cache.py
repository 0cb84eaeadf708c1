"""Caches the indexes of files between runs, so that each file is scanned only once."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from orbit_runner.data.disk_cache import Values, cached, file_status
from orbit_runner.data.tfrecord.framing import BLOCK_RECORDS, FileIndex, scan
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
    file = file_status(path, "input_path")

    def scan_file() -> Values:
        return dataclasses.asdict(scan(Path(file.path), per_record=per_record))

    # Always kept, because there may be a thousand files.
    key = "records" if per_record else f"blocks of {BLOCK_RECORDS}"
    return FileIndex(**cached("tfrecord", key, scan_file, [file], kept_seconds=0.0))
