"""The cache directory, and atomic writes of files."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from orbit_runner.storage.cache import cache_folder

__all__ = ["cache_folder", "write_aside"]


def write_aside(path: Path, content: bytes | memoryview, *, first_wins: bool = False) -> None:
    """Writes a file atomically, and creates its directory.

    With `first_wins`, a file that another process has written in the meantime is kept.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.chmod(aside, 0o644)
        _place(aside, path, first_wins)
    finally:
        Path(aside).unlink(missing_ok=True)


def _place(aside: str, path: Path, first_wins: bool) -> None:
    if not first_wins:
        os.replace(aside, path)
        return
    try:
        os.link(aside, path)
    except FileExistsError:
        pass
    except OSError:
        # The file system does not support links.
        os.replace(aside, path)
