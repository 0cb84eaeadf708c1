"""Checks files by size and checksum, and copies them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

_PIECE = 1 << 20


def sha256(path: Path) -> str:
    """Returns the SHA-256 of a file in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def has_checksum(path: Path, size: int, expected: str) -> bool:
    """Returns whether a file exists and has this size and SHA-256 (hexadecimal)."""
    return path.is_file() and path.stat().st_size == size and sha256(path) == expected


def copy(source: Path, target: Path, report: Callable[[int], None]) -> None:
    """Copies a file, overwriting `target`; calls `report` with the bytes copied so far."""
    with source.open("rb") as reader, target.open("wb") as writer:
        done = 0
        while piece := reader.read(_PIECE):
            writer.write(piece)
            done += len(piece)
            report(done)
