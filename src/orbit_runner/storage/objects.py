"""Accesses the objects below a URL of an object store with fsspec, with a time limit for retries.

fsspec and its packages are imported on first use, so that a run on local paths does not need them.
Does not import TensorFlow, so that commands without TensorFlow can use a store.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from orbit_runner import exit_codes
from orbit_runner.errors import RunnerError, first_line
from orbit_runner.storage.paths import STORES, PathError, redact, scheme_of, url_of

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from fsspec import AbstractFileSystem

    _Info = dict[str, Any]

_T = TypeVar("_T")

RETRY_VARIABLE = "ORBIT_RUNNER_STORAGE_RETRY_SECONDS"
_RETRY_SECONDS = 60.0
_FIRST_PAUSE = 0.25
_LONGEST_PAUSE = 8.0
# Retries are reported after this time.
_NOTICE_SECONDS = 2.0
# Errors of botocore and google.auth that are not retried. They are matched by name, because
# their packages may not be installed.
_PERMANENT = (
    "CredentialRetrievalError",
    "DefaultCredentialsError",
    "InvalidRegionError",
    "NoCredentialsError",
    "NoRegionError",
    "ParamValidationError",
    "PartialCredentialsError",
    "ProfileNotFound",
    "RefreshError",
    "TokenRetrievalError",
    "UnauthorizedSSOTokenError",
)
_PERMANENT_WORDS = ("does not exist", "is not valid", "Invalid bucket", "Unauthorized")


class StorageError(RunnerError):
    """An object that could not be read or written."""

    code = "unreachable"
    exit_code = exit_codes.CRASHED

    def __init__(self, message: str, *, permanent: bool = False, code: str = "") -> None:
        super().__init__(message, code=code)
        # Whether a retry cannot help: no credentials, no such bucket.
        self.permanent = permanent


@dataclasses.dataclass(frozen=True)
class ObjectInfo:
    """The metadata of an object."""

    size: int  # In bytes.
    version: str  # The ETag or generation, which changes with the content.
    modified: float  # In seconds since 1970; 0 if the store does not report it.


class ObjectStore:
    """The objects below a URL such as `gs://bucket/runs/a`. Thread-safe."""

    def __init__(self, url: str) -> None:
        self.url = url_of(url).rstrip("/")
        self._scheme = scheme_of(self.url)
        self._opened: AbstractFileSystem | None = None
        self._guard = threading.Lock()

    def connect(self) -> None:
        """Creates the file system without a request. Raises PathError if its package is missing."""
        with self._guard:
            if self._opened is None:
                self._opened = _open_file_system(self._scheme, self.url)

    def url_of(self, name: str) -> str:
        """Returns the URL of an object. "" stands for the URL of the store."""
        return f"{self.url}/{name}" if name else self.url

    def list(self) -> dict[str, ObjectInfo]:
        """Returns all objects below the URL, by name. Raises StorageError if this fails."""

        def find() -> dict[str, _Info]:
            try:
                return dict(self._fs.find(self.url, detail=True))
            except FileNotFoundError as error:
                if self._scheme == "memory":
                    return {}
                raise self._storage_error(
                    "list", "", error
                ) from error  # The bucket does not exist.

        root = f"{self._root}/"
        info_by_key = {
            key.lstrip("/"): info for key, info in self._call_with_retries("list", "", find).items()
        }
        names = {key.removeprefix(root): info for key, info in info_by_key.items()}
        return {
            name: _object_info(info)
            for name, info in sorted(names.items())
            if f"{root}{name}" in info_by_key and name and not name.endswith("/")
        }

    def info(self, name: str) -> ObjectInfo | None:
        """Returns the metadata of an object, or None if it does not exist."""
        try:
            info = self._call_with_retries("read", name, lambda: self._fs.info(self.url_of(name)))
        except FileNotFoundError:
            return None
        return _object_info(info) if info.get("type") != "directory" else None

    def read(self, name: str) -> bytes:
        """Returns the content of an object. Raises FileNotFoundError or StorageError."""
        return bytes(
            self._call_with_retries("read", name, lambda: self._fs.cat_file(self.url_of(name)))
        )

    def download(self, name: str, path: Path) -> None:
        """Downloads an object to a file atomically. Raises FileNotFoundError or StorageError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
        try:
            self._call_with_retries(
                "read", name, lambda: self._fs.get_file(self.url_of(name), str(part))
            )
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)

    def write(self, name: str, content: bytes) -> None:
        """Writes an object atomically: a reader sees the old or the new content."""
        self._write_with_retries(name, lambda: self._fs.pipe_file(self.url_of(name), content))

    def upload(self, path: Path, name: str) -> None:
        """Uploads a file as an object, atomically."""
        self._write_with_retries(name, lambda: self._fs.put_file(str(path), self.url_of(name)))

    def _write_with_retries(self, name: str, action: Callable[[], object]) -> None:
        try:
            self._call_with_retries("write", name, action)
        except FileNotFoundError as error:  # The bucket does not exist.
            raise self._storage_error("write", name, error) from error

    def delete(self, name: str) -> None:
        """Deletes an object if it exists."""
        with contextlib.suppress(FileNotFoundError):
            self._call_with_retries("delete", name, lambda: self._fs.rm_file(self.url_of(name)))

    def write_if(self, name: str, content: bytes, version: str | None) -> str | None:
        """Writes an object if it has the given version, and returns the new version, else None.

        If `version` is None, the object must not exist.
        """
        url = self.url_of(name)
        writers = {"s3": _write_s3, "gs": _write_gs}
        writer = writers.get(self._scheme, _write_plain)
        try:
            return self._call_with_retries(
                "write", name, lambda: writer(self._fs, url, content, version)
            )
        except FileNotFoundError as error:
            raise self._storage_error("write", name, error) from error

    @property
    def _root(self) -> str:
        return str(importlib.import_module("fsspec.core").strip_protocol(self.url)).strip("/")

    @property
    def _fs(self) -> AbstractFileSystem:
        self.connect()
        return self._opened

    def _call_with_retries(self, verb: str, name: str, action: Callable[[], _T]) -> _T:
        """Calls an action until it succeeds, fails permanently, or the time limit is reached."""
        started = time.monotonic()
        pause = _FIRST_PAUSE
        noted = False
        limit = retry_seconds()
        while True:
            try:
                return action()
            except (FileNotFoundError, RunnerError):
                raise
            except Exception as error:
                waited = time.monotonic() - started
                if _is_permanent(error) or waited + pause > limit:
                    raise self._storage_error(verb, name, error, waited) from error
                if waited > _NOTICE_SECONDS and not noted:
                    noted = True
                    print(
                        f"note: cannot {verb} {self.url_of(name)}: {_describe_error(error)}; "
                        f"retrying for up to {limit:.0f} s",
                        file=sys.stderr,
                    )
            # Random, so that many processes do not retry at the same time.
            time.sleep(pause * random.uniform(0.8, 1.2))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _storage_error(
        self, verb: str, name: str, error: Exception, waited: float = 0.0
    ) -> StorageError:
        tried = f" (tried for {waited:.1f} s)" if waited >= 0.1 else ""
        return StorageError(
            f"cannot {verb} {self.url_of(name)}: {_describe_error(error)}{tried}",
            permanent=_is_permanent(error),
        )


def retry_seconds() -> float:
    """Returns how many seconds a failing operation is retried.

    Raises PathError if the environment variable is not a valid number.
    """
    text = os.environ.get(RETRY_VARIABLE, "")
    try:
        value = float(text) if text else _RETRY_SECONDS
    except ValueError:
        value = -1.0
    if not 0.0 <= value < float("inf"):
        raise PathError(
            f"{RETRY_VARIABLE}: got {text!r}, expected a number of seconds, at least 0",
            code="wrong-type",
        )
    return value


def open_store(url: str, what: str) -> ObjectStore:
    """Opens an object store. Raises PathError if its package is missing.

    `what` is the flag, setting or argument that has the URL, for messages.
    """
    store = ObjectStore(url)
    try:
        store.connect()
    except PathError as error:
        raise PathError(prefix_message(what, str(error))) from error
    return store


def prefix_message(what: str, message: str) -> str:
    """Returns a message prefixed with a flag, setting or argument, if `what` is not empty."""
    return f"{what}: {message}" if what else message


@contextlib.contextmanager
def blame_scope(what: str) -> Iterator[None]:
    """Adds the flag, setting or argument to errors of a store.

    Permanent errors become PathError, which is a usage error.
    """
    try:
        yield
    except StorageError as error:
        if error.permanent:
            advice = "check the bucket name and the credentials on this machine"
            message = prefix_message(what, f"{error}\n{advice} (docs/storage.md)")
            raise PathError(message) from error
        raise StorageError(prefix_message(what, str(error))) from error
    except FileNotFoundError as error:
        raise PathError(prefix_message(what, _describe_error(error))) from error


def _open_file_system(scheme: str, url: str) -> AbstractFileSystem:
    if scheme not in STORES:
        raise PathError(f"got {redact(url)!r}: {scheme}:// is not supported", code="not-supported")
    try:
        importlib.import_module(STORES[scheme])
    except ImportError as error:
        raise PathError(
            f"{scheme}:// requires the package {STORES[scheme]}, which is not installed\n"
            "install it: pip install 'orbit-runner[cloud]'",
            code="missing-package",
        ) from error
    return _create_file_system(scheme, _environment_settings())


@functools.cache
def _create_file_system(scheme: str, settings: tuple[tuple[str, str], ...]) -> AbstractFileSystem:
    """Creates a file system. Cached for the same settings, because it takes a second."""
    fsspec = importlib.import_module("fsspec")
    options: dict[str, object] = {"skip_instance_cache": True}
    if scheme != "memory":
        options["use_listings_cache"] = False
    if scheme == "s3":
        # Only this module retries, with a time limit.
        given = fsspec.config.conf.get("s3", {}).get("config_kwargs", {})
        own = {"retries": {"max_attempts": 0}, "connect_timeout": 10, "read_timeout": 60}
        options["config_kwargs"] = {**own, **given}
    opened = fsspec.filesystem(scheme, **options)
    if scheme == "s3":
        opened.retries = 1
    if scheme != "memory":
        # A broken connection raises an error in the call that uses it. asyncio would also print a
        # traceback.
        opened.loop.call_soon_threadsafe(
            opened.loop.set_exception_handler, _ignore_connection_error
        )
    return opened


def _ignore_connection_error(loop: AbstractEventLoop, context: dict[str, object]) -> None:
    """Ignores a connection error."""


def _environment_settings() -> tuple[tuple[str, str], ...]:
    """Returns the environment variables that configure the stores and their credentials."""
    kinds = ("AWS_", "FSSPEC_", "GCS", "GOOGLE_", "STORAGE_")
    return tuple(
        sorted((name, text) for name, text in os.environ.items() if name.startswith(kinds))
    )


def _object_info(info: _Info) -> ObjectInfo:
    version = next((info[k] for k in ("ETag", "generation", "etag") if info.get(k)), "")
    modified = next((info[k] for k in ("LastModified", "mtime", "created") if info.get(k)), 0.0)
    if isinstance(modified, str):
        modified = datetime.fromisoformat(modified.replace("Z", "+00:00"))
    seconds = modified.timestamp() if isinstance(modified, datetime) else float(modified)
    return ObjectInfo(int(info.get("size") or 0), str(version or seconds), seconds)


def _is_permanent(error: Exception) -> bool:
    if isinstance(error, (FileNotFoundError, PermissionError, NotADirectoryError)):
        return True
    if type(error).__name__ in _PERMANENT:
        return True
    code = getattr(error, "code", None)
    if isinstance(code, int) and 400 <= code < 500 and code not in (408, 429):
        return True
    return any(word in str(error) for word in _PERMANENT_WORDS)


def _describe_error(error: BaseException) -> str:
    line = redact(first_line(error))
    return line if line != type(error).__name__ else f"{line} (no details)"


def _write_s3(fs: AbstractFileSystem, url: str, content: bytes, version: str | None) -> str | None:
    bucket, key, _ = fs.split_path(url)
    condition = {"IfNoneMatch": "*"} if version is None else {"IfMatch": version}
    try:
        response = fs.call_s3("put_object", Bucket=bucket, Key=key, Body=content, **condition)
    except OSError as error:
        if _is_refused_condition(error):
            return None
        raise
    return str(response["ETag"])


def _is_refused_condition(error: BaseException) -> bool:
    response = getattr(error.__cause__ or error, "response", None) or {}
    code = response.get("Error", {}).get("Code")
    return code in ("PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey")


def _write_gs(fs: AbstractFileSystem, url: str, content: bytes, version: str | None) -> str | None:
    bucket, key, _ = fs.split_path(url)
    line = "--=orbit=="
    head = f"{line}\nContent-Type: application/json\n\n{json.dumps({'name': key})}\n"
    body = f"{head}{line}\nContent-Type: application/octet-stream\n\n".encode() + content
    try:
        response = fs.call(
            "POST",
            f"{fs.base.removesuffix('storage/v1/')}upload/storage/v1/b/{quote(bucket)}/o",
            uploadType="multipart",
            ifGenerationMatch=version or "0",
            headers={"Content-Type": f'multipart/related; boundary="{line[2:]}"'},
            data=body + f"\n{line}--".encode(),
            json_out=True,
        )
    except Exception as error:
        if getattr(error, "code", None) == 412 or isinstance(error, FileExistsError):
            return None
        raise
    return str(response["generation"])


_PLAIN_GUARD = threading.Lock()


def _write_plain(
    fs: AbstractFileSystem, url: str, content: bytes, version: str | None
) -> str | None:
    """Compares and writes. Atomic for `memory://`, which only this process can access."""
    with _PLAIN_GUARD:
        current = _object_info(fs.info(url)).version if fs.exists(url) else None
        if current != version:
            return None
        fs.pipe_file(url, content)
        return _object_info(fs.info(url)).version
