"""Uploads files after they are written locally."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from orbit_runner.storage.objects import blame_scope, open_store
from orbit_runner.storage.paths import PathError, path_problem


@contextlib.contextmanager
def upload_scope(url: str, what: str, last: str = "") -> Iterator[Path]:
    """Yields an empty local directory, and uploads its files to `url` at the end of the block.

    `last` is the name of a file to upload after the others, such as the graph of a SavedModel,
    without which they are incomplete. Raises PathError if the URL is not supported or cannot be
    written, and StorageError if the store does not respond.
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
