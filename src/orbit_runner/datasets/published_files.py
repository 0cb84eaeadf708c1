"""Files of published weights: each is downloaded once, to the cache, and verified at each use.

A record beside each file has its SHA-256. Not all publishers state a digest; the file is then
expected to stay the one that was first downloaded.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from orbit_runner.data.fingerprint import content_digest
from orbit_runner.datasets.catalogue import PublishedFile
from orbit_runner.datasets.transfer import (
    PAUSES,
    DownloadError,
    FileProgress,
    download_verified,
    fetch,
    forget,
)
from orbit_runner.errors import RunnerError
from orbit_runner.storage.staging import lock_scope
from orbit_runner.utils.cache import cache_directory, write_shared_file
from orbit_runner.utils.log import phase

_PREFIX = "sha256:"
_MD5_DIGITS = 32


def weights_directory(name: str) -> Path:
    """Returns the directory of the cache for the weights of one network. It may not exist yet."""
    return cache_directory("weights") / name


def local_files(
    files: Sequence[PublishedFile], directory: Path, pauses: Sequence[float] = PAUSES
) -> dict[Path, str]:
    """Returns the local files and their digests, `sha256:…`; downloads those that are missing.

    Args:
        files: The files of one set of weights.
        directory: The directory of their copies. Other processes wait for each other.
        pauses: Seconds before each retry.

    Raises:
        DownloadError: A file cannot be downloaded, or differs from the published one.
        RunnerError: A file in the directory is not the published one, or has changed.
    """
    digests = {}
    try:
        with lock_scope(directory):
            for file in files:
                path = directory / file.name
                if not path.exists():
                    _download(file, path, pauses)
                digests[path] = _verify(file, path)
    except OSError as error:
        raise DownloadError(f"{error.filename or directory}: {error.strerror}") from error
    return digests


def _download(file: PublishedFile, path: Path, pauses: Sequence[float]) -> None:
    phase(f"downloading {file.name}")
    part = path.with_name(f"{path.name}.part")
    report = FileProgress().update
    download_verified(
        file.name,
        part,
        lambda: fetch([file.url], part, None, report, pauses),
        lambda got: _mismatch(got, *_expected(file, path)),
    )
    os.replace(part, path)
    forget(part)


def _verify(file: PublishedFile, path: Path) -> str:
    """Returns the digest of a file; raises an error if it is not the one that is expected."""
    digest = content_digest(path)
    record = _record(path)
    if digest == _read_digest(record):
        return digest
    problem = _mismatch(path, *_expected(file, path))
    if problem:
        raise RunnerError(
            f"{path} is not the published file, or has changed\n{problem}\n"
            "remove it to download it again",
            code="wrong-checksum",
        )
    content = {"url": file.url, "bytes": path.stat().st_size, "digest": digest}
    write_shared_file(record, json.dumps(content).encode() + b"\n")
    return digest


def _expected(file: PublishedFile, path: Path) -> tuple[str, str]:
    """Returns the digest that a file must have, "" if any, and where it comes from."""
    if file.digest:
        return file.digest, "published"
    record = _record(path)
    return _read_digest(record).removeprefix(_PREFIX), f"recorded in {record.name}"


def _mismatch(path: Path, expected: str, source: str) -> str:
    """Returns how a file differs from the digest that is expected, or "" if it does not."""
    kind = "MD5" if len(expected) == _MD5_DIGITS else "SHA-256"
    with path.open("rb") as content:
        got = _hexdigest(content, kind)
    if expected in ("", got):
        return ""
    return f"  got {path.stat().st_size:,} bytes, {kind} {got}\n  {source}: {kind} {expected}"


def _hexdigest(content: IO[bytes], kind: str) -> str:
    digest = hashlib.md5(usedforsecurity=False) if kind == "MD5" else hashlib.sha256()
    while block := content.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()


def _record(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")


def _read_digest(record: Path) -> str:
    try:
        return str(json.loads(record.read_text(encoding="utf-8"))["digest"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
