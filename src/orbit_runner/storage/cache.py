"""Cache directories for data that takes long to compute or download."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path, PurePosixPath

from orbit_runner.storage.paths import PathError, is_remote, local_path, path_problem, url_of


def cache_directory(kind: str) -> Path:
    """Returns the cache directory of a kind of data, such as `tfrecord`. It may not exist yet."""
    # Relative paths must be ignored according to the XDG Base Directory Specification.
    given = os.environ.get("XDG_CACHE_HOME", "")
    home = os.path.expanduser("~")
    usual = Path(home, ".cache") if os.path.isabs(home) else Path(tempfile.gettempdir())
    above = Path(given) if os.path.isabs(given) else usual
    return above / "orbit_runner" / kind


def url_cache_directory(kind: str, url: str) -> Path:
    """Returns the cache directory of a URL, for a kind of data such as `staged`.

    Its last part is that of the URL, so that names derived from it stay the same.
    """
    text = url_of(url).rstrip("/")
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return cache_directory(kind) / digest / PurePosixPath(text).name


def local_run_directory(path: str | os.PathLike[str], what: str = "model_dir") -> Path:
    """Returns the local run directory, or the working copy of a run in an object store.

    `what` is the flag or argument for messages. Raises PathError if the URL is not supported.
    """
    if not is_remote(path):
        return local_path(path, what)
    problem = path_problem(path, remote=True)
    if problem:
        raise PathError(f"{what}: {problem}")
    return url_cache_directory("runs", url_of(path))
