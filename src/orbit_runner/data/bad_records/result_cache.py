"""Caches which records of files cannot be read, because finding them takes long."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orbit_runner.errors import DataError
from orbit_runner.utils.cache import cache_directory, write_shared_file

_FORMAT = 1
Key = dict[str, Any]


def key_of(paths: Sequence[str | Path], what: Sequence[str]) -> Key:
    """Returns the cache key of the result for some files; `what` are settings.

    Raises `DataError` if a file does not exist.
    """
    names = [os.path.abspath(path) for path in paths]
    try:
        status = [os.stat(name) for name in names]
    except OSError as error:
        raise DataError(
            f"{error.filename}: cannot be read ({error.strerror})", code="unreadable-file"
        ) from None
    sizes_and_times = json.dumps(
        [[file_status.st_size, file_status.st_mtime_ns] for file_status in status]
    )
    return {
        "format": _FORMAT,
        "files": _digest(json.dumps(names)),
        "status": _digest(sizes_and_times),
        "what": [*what],
    }


def read_result(kind: str, key: Key) -> dict[int, str] | None:
    """Returns the problems of the records by number; None if they are not in the cache."""
    try:
        entry = json.loads(_entry_path(kind, key).read_bytes())
        if entry["key"] != key:
            return None
        return {int(number): str(problem) for number, problem in entry["bad"]}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_result(kind: str, key: Key, bad: dict[int, str]) -> None:
    """Stores which records are bad."""
    # If the cache cannot be written, the next run only takes longer.
    with contextlib.suppress(OSError):
        write_shared_file(
            _entry_path(kind, key), json.dumps({"key": key, "bad": [*bad.items()]}).encode()
        )


def _entry_path(kind: str, key: Key) -> Path:
    # Sizes and times are not part of the name, so that a new result replaces the old one.
    name = _digest(json.dumps([key["files"], key["what"]]))
    return cache_directory(kind) / f"{name}.bad"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
