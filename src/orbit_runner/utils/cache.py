"""The cache directory, and atomic writes of files."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from orbit_runner.storage.paths import cache_directory

__all__ = ["cache_directory", "write_shared_file"]


def write_shared_file(path: Path, content: bytes | memoryview) -> None:
    """Writes a file atomically that several processes may write, and creates its directory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)
