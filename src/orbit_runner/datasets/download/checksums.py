"""Sizes and sums of files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

_PIECE = 1 << 20


def sha256(path: Path) -> str:
    """Returns the SHA-256 of a file, hexadecimal.

    Args:
        path: The file.
    """
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def is_file_of(path: Path, size: int, expected: str) -> bool:
    """Returns whether a file is there and has this size and sum.

    Args:
        path: The file.
        size: Bytes; compared first, since that costs nothing.
        expected: SHA-256, hexadecimal.
    """
    return path.is_file() and path.stat().st_size == size and sha256(path) == expected


def copy(source: Path, target: Path, report: Callable[[int], None]) -> None:
    """Copies a file piece by piece.

    Args:
        source: The file.
        target: Its copy; overwritten.
        report: Called with the bytes copied so far.
    """
    with source.open("rb") as reader, target.open("wb") as writer:
        done = 0
        while piece := reader.read(_PIECE):
            writer.write(piece)
            done += len(piece)
            report(done)
