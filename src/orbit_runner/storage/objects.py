"""Reads and writes objects of a store with fsspec, which repeats requests that fail.

fsspec and its packages are imported on first use, so that a run on local paths does not need them.
"""

from __future__ import annotations

import contextlib
import importlib
import zlib
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from orbit_runner import exit_codes
from orbit_runner.errors import RunnerError, first_line
from orbit_runner.storage.paths import STORES, PathError, path_problem, redact, scheme_of, url_of

# The packages whose errors are those of a store. Any other error, except `OSError`, is a bug.
_PACKAGES = ("aiobotocore", "aiohttp", "botocore", "gcsfs", "google", "requests")
_ADVICE = "check the bucket name and the credentials on this machine (docs/storage.md)"


class StorageError(RunnerError):
    """A store that does not answer."""

    code = "unreachable"
    exit_code = exit_codes.CRASHED


# What identifies the content of a file or an object: its size in bytes, and when it was written, in
# nanoseconds since 1970. The digits of an object below a second are a digest of its ETag or
# generation, so that another content has another time.
Stat = tuple[int, int]


class ObjectStore:
    """The objects below a URL such as `gs://bucket/runs/a`, by name. Thread-safe.

    `what` is the flag, setting or argument that has the URL, for messages. Methods raise
    `StorageError` if the store does not answer, and `PathError` if an object or its bucket does not
    exist, or the credentials do not suffice.
    """

    def __init__(self, url: str, what: str = "") -> None:
        problem = path_problem(url, remote=True)
        if problem:
            raise PathError(problem, path=what)
        self.url = url_of(url).rstrip("/")
        self._what = what
        scheme = scheme_of(self.url)
        try:
            importlib.import_module(STORES[scheme])
        except ImportError as error:
            raise PathError(
                f"{scheme}:// requires the package {STORES[scheme]}, which is not installed\n"
                "install it: pip install 'orbit-runner[cloud]'",
                path=what,
                code="missing-package",
            ) from error
        fsspec = importlib.import_module("fsspec")
        self._fs: Any = fsspec.filesystem(scheme, use_listings_cache=False)

    def list(self) -> dict[str, Stat]:
        """Returns all objects."""
        root = f"{self.url.partition('://')[2]}/"
        with self._error_scope("list"):
            objects = self._fs.find(self.url, detail=True)
        return {
            key.removeprefix(root): _object_stat(info)
            for key, info in sorted(objects.items())
            if key.startswith(root) and not key.endswith("/")
        }

    def stat(self, name: str) -> Stat:
        """Returns what identifies the content of an object."""
        with self._error_scope("read", name):
            return _object_stat(self._fs.info(f"{self.url}/{name}"))

    def read(self, name: str) -> bytes:
        """Returns the content of an object."""
        with self._error_scope("read", name):
            return bytes(self._fs.cat_file(f"{self.url}/{name}"))

    def download(self, paths: Mapping[str, Path]) -> None:
        """Downloads objects to the given files. Each file is replaced when it is complete."""
        parts = {name: path.with_name(f".{path.name}.part") for name, path in paths.items()}
        with self._error_scope("read"):
            self._fs.get([f"{self.url}/{name}" for name in paths], [*map(str, parts.values())])
            for name, path in paths.items():
                parts[name].replace(path)

    def write(self, name: str, content: bytes) -> None:
        """Writes an object; a reader finds the old or the new content."""
        with self._error_scope("write", name):
            self._fs.pipe_file(f"{self.url}/{name}", content)

    def create(self, name: str, content: bytes) -> bool:
        """Writes an object, unless it exists. Returns whether it was written."""
        with self._error_scope("write", name):
            try:
                self._fs.pipe_file(f"{self.url}/{name}", content, mode="create")
            except Exception as error:
                # 412: the condition of the request does not hold.
                if isinstance(error, FileExistsError) or getattr(error, "code", 0) == 412:
                    return False
                raise
            return True

    def upload(self, path: Path, name: str) -> None:
        """Uploads a file as an object; a reader finds the old or the new content."""
        with self._error_scope("write", name):
            self._fs.put_file(str(path), f"{self.url}/{name}")

    def delete(self, name: str) -> None:
        """Deletes an object if it exists."""
        with self._error_scope("delete", name), contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(f"{self.url}/{name}")

    @contextlib.contextmanager
    def _error_scope(self, verb: str, name: str = "") -> Iterator[None]:
        try:
            yield
        except Exception as error:
            package = type(error).__module__.partition(".")[0]
            if not isinstance(error, OSError) and package not in _PACKAGES:
                raise
            line = redact(first_line(error))
            message = f"cannot {verb} {f'{self.url}/{name}'.rstrip('/')}: {line}"
            if isinstance(error, FileNotFoundError):
                raise PathError(message, path=self._what, code="missing-file") from error
            if isinstance(error, PermissionError) or "Credential" in type(error).__name__:
                message = f"{message}\n{_ADVICE}"
                raise PathError(message, path=self._what, code="unreachable") from error
            raise StorageError(message, path=self._what) from error


def _object_stat(info: Mapping[str, Any]) -> Stat:
    version = next((info[k] for k in ("ETag", "generation", "etag") if info.get(k)), "")
    modified = next((info[k] for k in ("LastModified", "mtime", "created") if info.get(k)), 0.0)
    if isinstance(modified, str):
        modified = datetime.fromisoformat(modified.replace("Z", "+00:00"))
    seconds = modified.timestamp() if isinstance(modified, datetime) else float(modified)
    below = zlib.crc32(str(version or seconds).encode()) % 10**9
    return int(info.get("size") or 0), int(seconds) * 10**9 + below


def file_stat(path: Path) -> Stat:
    """Returns what identifies the content of a local file."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns
