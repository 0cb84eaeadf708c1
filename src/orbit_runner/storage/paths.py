"""Determines whether a path is local, in an object store, or not supported; cache directories.

All paths from users are checked here before they are used, so that `gs://bucket/x` can never become
a local directory named `gs:`. Has no dependencies outside the standard library.
"""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from orbit_runner.errors import RunnerError

# The package that fsspec needs for each scheme.
STORES = {"gs": "gcsfs", "s3": "s3fs"}
# `pathlib` turns `gs://bucket/x` into `gs:/bucket/x`, which is accepted as the URL.
_COLLAPSED = re.compile(rf"({'|'.join(STORES)}):/(?!/)")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_USER_INFO = re.compile(r"(?<=://)[^/\s@]*@")
# What the readers of TensorFlow take for a pattern, or do not accept: bytes that are not UTF-8.
_UNREADABLE = re.compile(r"[\[\\\ud800-\udfff]")
_QUERY = re.compile(r"(://[^\s?\"']*)\?[^\s\"']*")
COPY_RUN = (
    "copy the run to this machine: `aws s3 sync URL DIR`, or `gcloud storage rsync -r URL DIR`"
)

SHARED = (
    "the processes of a cluster share one directory: use one that all of them mount, such as "
    "/gcs/BUCKET/… with Cloud Storage FUSE"
)


class PathError(RunnerError):
    """A path that cannot be used as its flag, setting or argument."""

    code = "bad-path"


def url_of(path: str | os.PathLike[str]) -> str:
    """Returns a path as a string. Restores the `//` of a URL that `pathlib` has removed."""
    return _COLLAPSED.sub(r"\1://", os.fspath(path), count=1)


def scheme_of(path: str | os.PathLike[str]) -> str:
    """Returns the scheme of a URL in lowercase, or "" for a path."""
    match = _SCHEME.match(url_of(path))
    return match[1].lower() if match else ""


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Returns whether a path is a URL."""
    return scheme_of(path) != ""


def path_problem(path: str | os.PathLike[str], *, remote: bool, use: str = "") -> str:
    """Returns why a path cannot be used, or "" if it can.

    `remote` is whether an object store is supported. If it is not, the message contains `use`,
    which says what to do instead.
    """
    scheme = scheme_of(path)
    shown = redact(url_of(path))
    if not scheme:
        return ""
    if scheme not in STORES:
        forms = "a local path, gs://bucket/…, s3://bucket/…" if remote else "a local path"
        return f"got {shown!r}: {scheme}:// is not supported\nallowed: {forms}"
    if not remote:
        return f"got {shown!r}, expected a local path\n{use or 'use a path on this machine'}"
    split = urlsplit(url_of(path))
    if "@" in split.netloc:
        return (
            f"got {shown!r} with a user name or password, which would be stored in records\n"
            "remove it, and set credentials in the environment (docs/storage.md)"
        )
    if not split.netloc:
        return f"got {shown!r}, expected {scheme}://bucket/path"
    return ""


def not_utf8_reason(path: str | os.PathLike[str]) -> str:
    """Returns why TensorFlow cannot write below a directory because of its name; "" if it can."""
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError:
        return (
            f"{path} is not UTF-8, and TensorFlow cannot write below such a directory\n"
            "use a directory whose name is UTF-8"
        )
    return ""


def readable_path(path: str | os.PathLike[str]) -> str:
    """Returns a path under which TensorFlow's readers find a local file or directory.

    They take `[` and `\\` in a path for parts of a pattern, and there is no way to escape them. So
    the part of the path that has them is replaced by a link to it, until the process ends.
    """
    text = os.fspath(path)
    if is_remote(text) or not _UNREADABLE.search(text):
        return text
    above = Path(text)
    below: list[str] = []
    while not (above.is_dir() and _UNREADABLE.search(above.name)):
        if above == above.parent:
            return text  # TensorFlow says that there is no such file.
        below.insert(0, above.name)
        above = above.parent
    return os.path.join(_link_to(os.path.abspath(above)), *below)


@functools.cache
def _link_to(directory: str) -> str:
    # Not at the top, because all commands import this module.
    import atexit
    import shutil
    import tempfile

    temporary = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    link = os.path.join(temporary, "link")
    os.symlink(directory, link)
    return link


def local_path(path: str | os.PathLike[str], what: str) -> Path:
    """Returns a local path. Raises PathError for a URL.

    `what` is the flag, setting or argument, for the message.
    """
    problem = path_problem(path, remote=False)
    if problem:
        raise PathError(problem, path=what)
    return Path(path)


def redact(text: str) -> str:
    """Returns a text without the credentials that are in URLs."""
    return _QUERY.sub(r"\1?…", _USER_INFO.sub("…@", text))


def cache_directory(kind: str) -> Path:
    """Returns the cache directory of a kind of data, such as `tfrecord`. It may not exist yet."""
    import tempfile  # Not at the top, because all commands import this module.

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
    import hashlib  # Not at the top, because all commands import this module.

    text = url_of(url).rstrip("/")
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return cache_directory(kind) / digest / PurePosixPath(text).name


def local_run_directory(path: str | os.PathLike[str]) -> Path:
    """Returns the local run directory, or the local copy of a run in an object store.

    Raises PathError if the URL is not supported.
    """
    problem = path_problem(path, remote=True)
    if problem:
        raise PathError(problem, path="model_dir")
    return url_cache_directory("runs", url_of(path)) if is_remote(path) else Path(path)
