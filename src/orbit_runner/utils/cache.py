"""The cache directory, and atomic writes of files."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from orbit_runner.storage.paths import cache_directory

__all__ = ["cache_directory", "write_shared_file"]


def write_shared_file(path: Path, content: bytes | memoryview, *, first_wins: bool = False) -> None:
    """Writes a file atomically that several processes may write, and creates its directory.

    With `first_wins`, a file that another process has written in the meantime is kept.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644)
        _move_into_place(temporary, path, first_wins)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _move_into_place(temporary: str, path: Path, first_wins: bool) -> None:
    if not first_wins:
        os.replace(temporary, path)
        return
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass
    except OSError:
        # The file system does not support links.
        os.replace(temporary, path)
