"""Caches which records of files cannot be read, because finding out takes reading all of them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orbit_runner.errors import DataError
from orbit_runner.utils.cache import cache_folder, write_aside

# A problem that may be gone when the files are the same, so it is not cached.
CANNOT_BE_READ = "cannot be read"
_FORMAT = 1
Key = dict[str, Any]


def key_of(paths: Sequence[str | Path], what: Sequence[str]) -> Key:
    """Returns what the result for some files depends on; `what` are settings.

    Raises `DataError` if a file does not exist.
    """
    names = [os.path.abspath(path) for path in paths]
    try:
        status = [os.stat(name) for name in names]
    except OSError as error:
        raise DataError(f"{error.filename}: cannot be read ({error.strerror})") from None
    said = json.dumps([[one.st_size, one.st_mtime_ns] for one in status])
    return {
        "format": _FORMAT,
        "files": _digest(json.dumps(names)),
        "status": _digest(said),
        "what": [*what],
    }


def read_result(kind: str, key: Key) -> dict[int, str] | None:
    """Returns the problems of the records by number; None if they are not in the cache."""
    try:
        said = json.loads(_entry(kind, key).read_bytes())
        if said["key"] != key:
            return None
        return {int(number): str(problem) for number, problem in said["bad"]}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_result(kind: str, key: Key, bad: dict[int, str]) -> None:
    """Stores the problems of the records, unless one of them may be gone the next time."""
    if any(CANNOT_BE_READ in problem for problem in bad.values()):
        return
    # If the cache cannot be written, the next run only takes longer.
    with contextlib.suppress(OSError):
        write_aside(_entry(kind, key), json.dumps({"key": key, "bad": [*bad.items()]}).encode())


def _entry(kind: str, key: Key) -> Path:
    # Without sizes and times: files that change replace their result.
    name = _digest(json.dumps([key["files"], key["what"]]))
    return cache_folder(kind) / f"{name}.bad"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
