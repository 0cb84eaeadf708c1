"""Fingerprints of the files that a run reads, so that a change between two starts is noticed.

Names are relative to the directory that all files of a section have in common: a dataset that
moves to another directory keeps its fingerprint.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from orbit_runner.data.source import Repeated, leaves
from orbit_runner.errors import DataError
from orbit_runner.utils.cache import cache_folder, write_aside

_THREADS = 8
# A digest that was faster than this is not worth a file in the cache.
_CACHED_SECONDS = 1.0


@dataclasses.dataclass(frozen=True)
class DataFile:
    """One file of a dataset, all images of a class directory, or one array.

    Attributes:
        name: Its path below the directory that all files of the section have in common.
        bytes: Its size.
        mtime_ns: When it was modified; the newest of several files.
        digest: A digest of the contents, prefixed by what it is computed from; "" if unknown.
        files: How many files it stands for.
        path: Where it is now; "" for an array. Not part of the fingerprint.
    """

    name: str
    bytes: int
    mtime_ns: int = 0
    digest: str = ""
    files: int = 1
    path: str = dataclasses.field(default="", compare=False)

    def as_dict(self) -> dict[str, Any]:
        """Returns the fingerprint as JSON can hold it."""
        found = dataclasses.asdict(self)
        del found["path"]
        return found


Fingerprint = Mapping[str, Sequence[DataFile]]


def describe_files(
    paths: Sequence[str | Path], digest: Callable[[Path], str] | None = None
) -> list[DataFile]:
    """Describes files.

    Args:
        paths: The files, in the order in which they are read.
        digest: Computes the digest of a file; None to compare sizes and times only.

    Returns:
        One row per file.

    Raises:
        DataError: A file cannot be read.
    """
    absolute = [Path(path).absolute() for path in paths]
    if not absolute:
        return []
    common = os.path.commonpath([path.parent for path in absolute])

    def describe(path: Path) -> DataFile:
        status = os.stat(path)
        return DataFile(
            name=os.path.relpath(path, common),
            bytes=status.st_size,
            mtime_ns=status.st_mtime_ns,
            digest=digest(path) if digest else "",
            path=os.fspath(path),
        )

    try:
        with ThreadPoolExecutor(_THREADS) as pool:
            return list(pool.map(describe, absolute))
    except OSError as error:
        raise DataError(f"{error.filename}: cannot be read ({error.strerror})") from None


def describe_directories(directories: Mapping[str, Sequence[str]]) -> list[DataFile]:
    """Describes directories of many small files by the names and sizes of these.

    Args:
        directories: The files of each directory, in the order in which they are read.

    Returns:
        One row per directory; its `path` is that of the newest file.

    Raises:
        DataError: A file cannot be read.
    """
    if not directories:
        return []
    common = os.path.commonpath([os.path.dirname(directory) for directory in directories])
    try:
        return [
            _describe_directory(directory, os.path.relpath(directory, common), paths)
            for directory, paths in directories.items()
        ]
    except OSError as error:
        raise DataError(f"{error.filename}: cannot be read ({error.strerror})") from None


def _describe_directory(directory: str, name: str, paths: Sequence[str]) -> DataFile:
    # A dataset may have a million of them: few calls for each.
    status = [os.stat(path) for path in paths]
    sizes, times = [one.st_size for one in status], [one.st_mtime_ns for one in status]
    start, newest = len(directory), max(times)
    said = "".join([f"{p[start:]}\0{size}\n" for p, size in zip(paths, sizes, strict=True)])
    digest = hashlib.sha256(said.encode(errors="surrogateescape")).hexdigest()
    return DataFile(
        name=name,
        bytes=sum(sizes),
        mtime_ns=newest,
        digest=f"sizes:{digest}",
        files=len(paths),
        path=paths[times.index(newest)],
    )


def describe_arrays(arrays: Mapping[str, Any]) -> list[DataFile]:
    """Describes arrays that no file is known for.

    Args:
        arrays: Numpy arrays by name, nested at will.

    Returns:
        One row per array.
    """
    rows = []
    for path, array in leaves(arrays):
        stored = array.rows if isinstance(array, Repeated) else array
        digest = hashlib.sha256(f"{stored.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(stored).data)
        rows.append(DataFile(path, int(stored.nbytes), digest=f"array:{digest.hexdigest()}"))
    return rows


def content_digest(path: Path) -> str:
    """Returns the SHA-256 of a file.

    A digest that took long is cached until size or time of the file change.

    Args:
        path: The file.

    Raises:
        OSError: It cannot be read.
    """
    status = path.stat()
    return _content_digest(path, status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=256)
def _content_digest(path: Path, size: int, mtime_ns: int) -> str:
    key = [os.fspath(path), size, mtime_ns]
    entry = cache_folder("digests") / f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:32]}.json"
    with contextlib.suppress(OSError, ValueError, TypeError):
        cached_key, digest = json.loads(entry.read_bytes())
        if cached_key == key:
            return str(digest)
    began = time.monotonic()
    digest = read_digest(path)
    if time.monotonic() - began > _CACHED_SECONDS:
        with contextlib.suppress(OSError):
            write_aside(entry, json.dumps([key, digest]).encode())
    return digest


def read_digest(path: Path) -> str:
    """Computes the SHA-256 of a file.

    Args:
        path: The file.

    Raises:
        OSError: It cannot be read.
    """
    sha = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            sha.update(block)
    return f"sha256:{sha.hexdigest()}"


@dataclasses.dataclass(frozen=True)
class DataDifference:
    """What differs between two fingerprints.

    Attributes:
        changes: Files with other contents, one line each.
        notes: Files of which only the time is known to differ, one line each.
    """

    changes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def compare(before: Fingerprint, now: Fingerprint) -> DataDifference:
    """Compares two fingerprints.

    Args:
        before: What was recorded.
        now: What is there.

    Returns:
        The differences, of the sections that both have.
    """
    changes: list[str] = []
    notes: list[str] = []
    for section in (name for name in before if name in now):
        for line, is_change in _compare_section(before[section], now[section]):
            (changes if is_change else notes).append(f"{section}: {line}")
    return DataDifference(tuple(changes), tuple(notes))


def _compare_section(
    before: Sequence[DataFile], now: Sequence[DataFile]
) -> Iterator[tuple[str, bool]]:
    """Yields what differs, and whether the contents do."""
    digests = [row.digest for row in before]
    if all(digests) and digests == [row.digest for row in now]:
        return  # Renamed at most.
    left, right = ({row.name: row for row in rows} for rows in (before, now))
    for name in left:
        if name not in right:
            yield f"{name}: missing, it had {_size(left[name])}", True
        elif line := _describe_change(left[name], right[name]):
            yield line, True
        elif not right[name].digest and left[name].mtime_ns != right[name].mtime_ns:
            yield f"{name}: modified {_time(right[name])}, of the same size as before", False
    for name in right:
        if name not in left:
            yield f"{name}: new, it has {_size(right[name])}", True
    if set(left) == set(right) and list(left) != list(right):
        yield "the same files in another order", True


def _describe_change(before: DataFile, now: DataFile) -> str:
    kinds = {row.digest.partition(":")[0] for row in (before, now)}
    comparable = len(kinds) == 1 and "" not in kinds
    if before.digest == now.digest if comparable else before.bytes == now.bytes:
        return ""
    newer = ""
    if now.mtime_ns > before.mtime_ns:
        newest = f"{os.path.basename(now.path)} " if now.digest.startswith("sizes:") else ""
        newer = f"; {newest}modified {_time(now)}"
    if (before.bytes, before.files) != (now.bytes, now.files):
        return f"{before.name}: {_size(now)}, it had {_size(before)}{newer}"
    return f"{before.name}: other contents, of the same size{newer}"


def _size(row: DataFile) -> str:
    is_directory = row.digest.startswith("sizes:")
    count = f"{row.files:,} file{'s' if row.files != 1 else ''}, " if is_directory else ""
    return f"{count}{row.bytes:,} bytes"


def _time(row: DataFile) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row.mtime_ns // 10**9))
