"""What kind of place a path names: this machine, an object store, or something unknown.

Every path that a user writes goes through this module before it is used, so that `gs://bucket/x`
can never become a local directory that is called `gs:`. Imports nothing but the standard library.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from orbit_runner.errors import RunnerError

# Scheme: the package that gives fsspec access to it. `memory` is fsspec's own, for tests.
STORES = {"gs": "gcsfs", "s3": "s3fs", "memory": "fsspec"}
# `pathlib` turns `gs://bucket/x` into `gs:/bucket/x`, which is taken for what it was.
_COLLAPSED = re.compile(rf"({'|'.join(STORES)}|file):/(?!/)")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_LOCAL_HOSTS = ("", "localhost")
_USER_INFO = re.compile(r"(?<=://)[^/\s@]*@")
_QUERY = re.compile(r"(://[^\s?\"']*)\?[^\s\"']*")
_SECRET_VARIABLES = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID")
# A shorter value would be found in innocent words.
_SHORTEST_SECRET = 8

_LOCAL_FORMS = "a local path, file:///…"


class PathError(RunnerError):
    """A path of a kind that cannot be used where it was given."""


def url_of(path: str | os.PathLike[str]) -> str:
    """Returns a path as text, with the `//` of a URL that `pathlib` has taken away.

    Args:
        path: A path or a URL.
    """
    return _COLLAPSED.sub(r"\1://", os.fspath(path), count=1)


def scheme_of(path: str | os.PathLike[str]) -> str:
    """Returns the scheme of a URL in lower case; "" for a path without one.

    Args:
        path: A path or a URL.
    """
    match = _SCHEME.match(url_of(path))
    return match[1].lower() if match else ""


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Returns whether a path is a URL of anything but a local file.

    Args:
        path: A path or a URL.
    """
    return scheme_of(path) not in ("", "file")


def path_problem(path: str | os.PathLike[str], *, remote: bool, use: str = "") -> str:
    """Returns why a path cannot be used; "" if it can.

    Args:
        path: A path or a URL.
        remote: Whether an object store is supported at that place.
        use: What to use in place of an object store where it is not supported.
    """
    scheme, shown = scheme_of(path), redact(url_of(path))
    if not scheme:
        return ""
    if scheme == "file":
        return _file_problem(url_of(path))
    if scheme not in STORES:
        forms = f"{_LOCAL_FORMS}, gs://bucket/…, s3://bucket/…" if remote else _LOCAL_FORMS
        return f"got {shown!r}: {scheme}:// is not supported\nallowed: {forms}"
    if not remote:
        return f"got {shown!r}, expected a local path\n{use or 'give a path of this machine'}"
    split = urlsplit(url_of(path))
    if "@" in split.netloc:
        return (
            f"got {shown!r} with a user name or a password, which records would keep\n"
            "leave them out, and give credentials by the environment (docs/storage.md)"
        )
    if not split.netloc:
        return f"got {shown!r}, expected {scheme}://bucket/path"
    return ""


def _file_problem(url: str) -> str:
    split = urlsplit(url)
    if split.netloc in _LOCAL_HOSTS and split.path.startswith("/"):
        return ""
    return f"got {redact(url)!r}, expected file:///… with an absolute path"


def local_path(path: str | os.PathLike[str], what: str, use: str = "") -> Path:
    """Returns a path of this machine; a `file://` URL becomes one.

    Args:
        path: A path or a URL.
        what: The flag, setting or argument, named in the error message.
        use: What to do where an object store was given.

    Raises:
        PathError: It is not a path of this machine.
    """
    problem = path_problem(path, remote=False, use=use)
    if problem:
        raise PathError(f"{what}: {problem}")
    return Path(without_file_scheme(path))


def without_file_scheme(path: str | os.PathLike[str]) -> str:
    """Returns the path that a `file://` URL names; any other path as it is.

    Args:
        path: A path or a URL.
    """
    text = os.fspath(path)
    if scheme_of(text) != "file" or _file_problem(url_of(text)):
        return text
    return unquote(urlsplit(url_of(text)).path)


def redact(text: str) -> str:
    """Returns a text without credentials: those in URLs, and those of the environment.

    Args:
        text: A URL, or a message of another library.
    """
    text = _QUERY.sub(r"\1?…", _USER_INFO.sub("…@", text))
    for secret in _secrets():
        text = text.replace(secret, "…")
    return text


def _secrets() -> Iterator[str]:
    for name in _SECRET_VARIABLES:
        value = os.environ.get(name, "")
        if len(value) >= _SHORTEST_SECRET:
            yield value
