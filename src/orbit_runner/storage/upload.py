"""Files that are written on this machine, then uploaded."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from orbit_runner.storage.objects import blame_scope, open_store
from orbit_runner.storage.paths import PathError, path_problem


@contextlib.contextmanager
def upload_scope(url: str, what: str, last: str = "") -> Iterator[Path]:
    """Yields an empty local directory, and uploads what is in it at the end of the block.

    Args:
        url: Where the files go.
        what: The flag, setting or argument that names it, for messages.
        last: A file that makes the others one thing, such as the graph of a SavedModel; it is
            uploaded after them.

    Raises:
        PathError: The URL is not one of a supported kind, or cannot be written.
        StorageError: The store does not answer.
    """
    problem = path_problem(url, remote=True)
    if problem:
        raise PathError(f"{what}: {problem}")
    store = open_store(url, what)
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)
        files = [path for path in Path(folder).rglob("*") if path.is_file()]
        with blame_scope(what):
            for path in sorted(files, key=lambda path: (path.name == last, path)):
                store.upload(path, path.relative_to(folder).as_posix())
