"""Where things are kept from run to run, because making or downloading them takes long."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path, PurePosixPath

from orbit_runner.storage.paths import PathError, is_remote, local_path, path_problem, url_of


def cache_folder(kind: str) -> Path:
    """Returns where things of a kind are kept; the folder need not exist.

    Args:
        kind: Such as `tfrecord`.
    """
    # A relative path there is to be ignored, says the XDG Base Directory Specification.
    given = os.environ.get("XDG_CACHE_HOME", "")
    home = os.path.expanduser("~")
    usual = Path(home, ".cache") if os.path.isabs(home) else Path(tempfile.gettempdir())
    above = Path(given) if os.path.isabs(given) else usual
    return above / "orbit_runner" / kind


def url_folder(kind: str, url: str) -> Path:
    """Returns a directory of the cache that belongs to one URL.

    Its last part is that of the URL, so that names made of it stay the same.

    Args:
        kind: Such as `staged`.
        url: The URL.
    """
    text = url_of(url).rstrip("/")
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return cache_folder(kind) / digest / PurePosixPath(text).name


def local_run_directory(path: str | os.PathLike[str], what: str = "model_dir") -> Path:
    """Returns the local directory of a run; of one in an object store, its working copy.

    Args:
        path: The run directory: a path or a URL.
        what: The flag or argument that names it, for messages.

    Raises:
        PathError: It is a URL of a kind that is not supported.
    """
    if not is_remote(path):
        return local_path(path, what)
    problem = path_problem(path, remote=True)
    if problem:
        raise PathError(f"{what}: {problem}")
    return url_folder("runs", url_of(path))
