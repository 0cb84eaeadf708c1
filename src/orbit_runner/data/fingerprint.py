"""Fingerprints of the files that a run reads, to detect changes between two starts.

Names are relative to the common directory of all files of a section, so a dataset that moves to
another directory keeps its fingerprint.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from orbit_runner.data.arrays import leaves
from orbit_runner.data.disk_cache import FileStatus, cached, file_status
from orbit_runner.errors import DataError
from orbit_runner.utils.files import sha256_of

_THREADS = 8


@dataclasses.dataclass(frozen=True)
class DataFile:
    """One file of a dataset, all images of a class directory, or one array.

    Attributes:
        name: Path relative to the common directory of all files of the section.
        bytes: Size in bytes.
        mtime_ns: Modification time; the latest one of several files.
        digest: Digest of the contents, with a prefix for the kind of digest. Empty if unknown.
        files: Number of files that the entry describes.
        path: Current path, empty for an array. Not part of the fingerprint.
    """

    name: str
    bytes: int
    mtime_ns: int = 0
    digest: str = ""
    files: int = 1
    path: str = dataclasses.field(default="", compare=False)

    def as_dict(self) -> dict[str, object]:
        """Returns the fingerprint as a JSON-serializable dictionary."""
        fields = dataclasses.asdict(self)
        del fields["path"]
        return fields


Fingerprint = Mapping[str, Sequence[DataFile]]


def describe_files(
    paths: Sequence[str | Path], digest: Callable[[Path], str] | None = None
) -> list[DataFile]:
    """Returns the fingerprints of files.

    Args:
        paths: The files, in the order in which they are read.
        digest: Computes the digest of a file. If None, only sizes and times are compared.

    Returns:
        One entry per file.

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

    with _read_error_scope(), ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(describe, absolute))


def describe_directories(directories: Mapping[str, Sequence[str]]) -> list[DataFile]:
    """Returns one entry per directory, with a digest of the names and sizes of its files.

    `directories` maps each directory to its files, in the order in which they are read. The `path`
    of an entry is that of the newest file. Raises `DataError` if a file cannot be read.
    """
    if not directories:
        return []
    common = os.path.commonpath([os.path.dirname(directory) for directory in directories])
    with _read_error_scope():
        return [
            _describe_directory(directory, os.path.relpath(directory, common), paths)
            for directory, paths in directories.items()
        ]


@contextlib.contextmanager
def _read_error_scope() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{error.filename}: cannot be read ({error.strerror})", code="unreadable-file"
        ) from None


def _describe_directory(directory: str, name: str, paths: Sequence[str]) -> DataFile:
    # A dataset can have a million files, so make few calls per file.
    status = [os.stat(path) for path in paths]
    sizes = [file_status.st_size for file_status in status]
    times = [file_status.st_mtime_ns for file_status in status]
    start = len(directory)
    newest = max(times)
    listing = "".join([f"{p[start:]}\0{size}\n" for p, size in zip(paths, sizes, strict=True)])
    digest = hashlib.sha256(listing.encode(errors="surrogateescape")).hexdigest()
    return DataFile(
        name=name,
        bytes=sum(sizes),
        mtime_ns=newest,
        digest=f"sizes:{digest}",
        files=len(paths),
        path=paths[times.index(newest)],
    )


def describe_arrays(arrays: Mapping[str, Any]) -> list[DataFile]:
    """Returns one entry per array of a nested mapping, with a digest of its contents."""
    rows = []
    for path, array in leaves(arrays):
        digest = hashlib.sha256(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
        rows.append(DataFile(path, int(array.nbytes), digest=f"array:{digest.hexdigest()}"))
    return rows


def content_digest(path: Path) -> str:
    """Returns the SHA-256 digest of a file, as `sha256:<hex>`.

    A digest that took long is cached on disk until the size or the modification time of the file
    changes. Raises `DataError` or `OSError` if the file cannot be read.
    """
    return _content_digest(file_status(path))


@functools.lru_cache(maxsize=256)
def _content_digest(file: FileStatus) -> str:
    values = cached(
        "digests", [], lambda: {"digest": f"sha256:{sha256_of(Path(file.path))}"}, [file]
    )
    return str(values["digest"])


@dataclasses.dataclass(frozen=True)
class DataDifference:
    """The differences between two fingerprints, one line each."""

    changes: tuple[str, ...] = ()  # Files with different contents.
    notes: tuple[str, ...] = ()  # Files of which only the modification time is known to differ.


def compare(before: Fingerprint, now: Fingerprint) -> DataDifference:
    """Returns the differences between two fingerprints, in the sections that both have."""
    changes: list[str] = []
    notes: list[str] = []
    for section in (name for name in before if name in now):
        for line, is_change in _compare_section(before[section], now[section]):
            (changes if is_change else notes).append(f"{section}: {line}")
    return DataDifference(tuple(changes), tuple(notes))


def _compare_section(
    before: Sequence[DataFile], now: Sequence[DataFile]
) -> Iterator[tuple[str, bool]]:
    """Yields each difference, and whether the contents differ."""
    digests = [row.digest for row in before]
    if all(digests) and digests == [row.digest for row in now]:
        return  # The files are equal, or were only renamed.
    left, right = ({row.name: row for row in rows} for rows in (before, now))
    for name in left:
        if name not in right:
            yield f"{name}: missing", True
        elif not have_equal_contents(left[name], right[name]):
            yield f"{name}: changed", True
        elif not right[name].digest and left[name].mtime_ns != right[name].mtime_ns:
            yield f"{name}: modified, same size as before", False
    for name in right:
        if name not in left:
            yield f"{name}: new", True
    if set(left) == set(right) and list(left) != list(right):
        yield "the same files in a different order", True


def have_equal_contents(left: DataFile, right: DataFile) -> bool:
    """Returns whether two files have the same digest, or size if there are no such digests."""
    kinds = {row.digest.partition(":")[0] for row in (left, right)}
    comparable = len(kinds) == 1 and "" not in kinds
    return left.digest == right.digest if comparable else left.bytes == right.bytes
