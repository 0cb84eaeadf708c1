"""Caches the line counts and digests of files that take long to read."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from orbit_runner.errors import DataError
from orbit_runner.utils.cache import cache_directory, write_shared_file

_LineCount = tuple[int, str]

# Results that took less time are not worth a file.
_KEPT_SECONDS = 1.0


def text_cache() -> Path:
    """Returns the cache directory for text; it may not exist."""
    return cache_directory("text")


def load_or_count(
    path: Path, count: Callable[[Path], _LineCount], suffix: str = ".lines"
) -> _LineCount:
    """Returns the line count and digest from `count`, cached while the file is unchanged.

    `suffix` is that of the cached file. Raises DataError if the file does not exist.
    """
    path = path.absolute()
    try:
        status = path.stat()
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error})", field="input_path", code="unreadable-file"
        ) from None
    return _load_or_count(path, status.st_size, status.st_mtime_ns, count, suffix)


@functools.lru_cache(maxsize=256)
def _load_or_count(
    path: Path, size: int, mtime_ns: int, count: Callable[[Path], _LineCount], suffix: str
) -> _LineCount:
    key = [os.fspath(path), size, mtime_ns]
    entry = text_cache() / f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:32]}{suffix}"
    line_count = _read(entry, key)
    if line_count is None:
        began = time.monotonic()
        line_count = count(path)
        if time.monotonic() - began > _KEPT_SECONDS:
            # If the cache cannot be written, the next run only takes longer.
            with contextlib.suppress(OSError):
                write_shared_file(entry, json.dumps([key, line_count]).encode())
    return line_count


def _read(entry: Path, key: list[object]) -> _LineCount | None:
    try:
        cached_key, (lines, digest) = json.loads(entry.read_bytes())
        return (int(lines), str(digest)) if cached_key == key else None
    except (OSError, ValueError, TypeError):
        return None
