"""Makes the paths of an experiment local: expands `~`, and copies remote files to a local cache.

Copies are compared with the store before use. Files that are written locally are uploaded.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import fnmatch
import functools
import json
import logging
import os
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar

from orbit_runner.errors import SettingError
from orbit_runner.storage.objects import (
    ObjectInfo,
    ObjectStore,
    blame_scope,
    open_store,
    prefix_message,
)
from orbit_runner.storage.paths import (
    EmptyPathError,
    PathError,
    is_remote,
    path_problem,
    strip_file_scheme,
    url_cache_directory,
)

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_Section = TypeVar("_Section", bound="DataclassInstance")

_WILDCARDS = re.compile(r"[*?\[]")
_POINTER = re.compile(r'^model_checkpoint_path: "(.*)"$', re.MULTILINE)


def localize(config: Any, *, data: bool = True) -> Any:
    """Returns an experiment with local paths instead of URLs and `~`.

    Datasets and vocabulary files of this package's tasks are copied to the local cache, and so is
    the checkpoint of `init_checkpoint`. Model Garden's pipelines read `gs://` directly. All calls
    in a process return the same files, which are compared with the store once. Raises SettingError
    if a URL has no content or cannot be read, and StorageError if a store does not respond.

    Without `data`, datasets stay where they are, because a trained model needs none.
    """
    # Only Model Garden's experiments have a template.
    copies_data = data and getattr(config, "template", None) is None
    task = _localize_section(config.task, "task", data=copies_data)
    return config if task is config.task else config.replace(task=task)


def local_checkpoint(path: str) -> str:
    """Returns the local path of a checkpoint or of its directory. Copies a remote checkpoint first.

    Raises SettingError if the URL has no content or cannot be read.
    """
    what = "task.init_checkpoint"
    try:
        return _localize_checkpoint(path, what)
    except PathError as error:
        raise SettingError(what, str(error).removeprefix(f"{what}: "), code=error.code) from error


def local_file(path: str, what: str) -> str:
    """Returns the local path of a file. Copies a remote file first.

    Raises SettingError if the URL has no content or cannot be read.
    """
    try:
        return _localize_file(os.path.expanduser(path), what)
    except PathError as error:
        raise SettingError(what, str(error).removeprefix(f"{what}: "), code=error.code) from error


def _localize_section(section: _Section, path: str, *, data: bool) -> _Section:
    """Returns a section with local paths, or the same object if nothing changes."""
    changes: dict[str, object] = {}
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        below = f"{path}.{field.name}"
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            new = _localize_section(value, below, data=data)
        else:
            new = _localize_value(section, field, value, below, data=data)
        if new is not value:
            changes[field.name] = new
    return dataclasses.replace(section, **changes) if changes else section


def _localize_value(
    section: DataclassInstance, field: dataclasses.Field[Any], value: Any, path: str, *, data: bool
) -> Any:
    kind = field.metadata.get("path")
    if not kind:
        return value
    value = _expand_home(value)
    if not _has_url(value):
        return value
    try:
        if kind == "checkpoint":
            return _localize_checkpoint(value, path)
        if not data:
            return value
        if kind == "dir":
            return _localize_directory(value, path, _needed_files(section, field.name))
        if kind == "patterns":
            return _localize_patterns(value, path)
        if kind == "file" and isinstance(value, str):  # `exclude` may be a list of examples.
            return _localize_file(value, path)
    except PathError as error:
        reason = str(error).removeprefix(f"{path}: ")
        raise SettingError(path, reason, code="missing-file") from error
    return value


def _expand_home(value: Any) -> Any:
    """Expands `~` at the start of each path. Returns the same object if it has no `~`."""
    if isinstance(value, str):
        # A string may contain several paths, separated by commas.
        parts = (os.path.expanduser(part.strip()) for part in value.split(","))
        return ",".join(parts) if "~" in value else value
    if isinstance(value, (list, tuple)) and any("~" in str(item) for item in value):
        return [_expand_home(item) for item in value]
    return value


def _has_url(value: object) -> bool:
    texts = [value] if isinstance(value, str) else value if isinstance(value, (list, tuple)) else ()
    return any(isinstance(text, str) and "://" in text for text in texts)


def _needed_files(section: DataclassInstance, name: str) -> tuple[str, ...]:
    """Returns patterns of the files that a section reads in one of its directories; () for all."""
    if name == "tfds_data_dir":
        tfds = str(getattr(section, "tfds_name", "")).partition(":")[0]
        return (f"{tfds}/*",) if tfds else ()
    if name != "data_dir" or getattr(section, "source", "") == "image_csv":
        return ()  # `input_path` is a directory, and the CSV files may be outside of it.
    given = getattr(section, "input_path", "") or ""
    parts = [part for text in ([given] if isinstance(given, str) else given)
             for part in text.split(",")]  # fmt: skip
    return tuple(part.strip() for part in parts if part.strip() and "://" not in part)


@functools.cache
def _localize_directory(url: str, what: str, patterns: tuple[str, ...] = ()) -> str:
    if not is_remote(url):
        return strip_file_scheme(url)
    return str(
        stage(url, what, functools.partial(_select_matching, patterns) if patterns else None)
    )


@functools.cache
def _localize_file(url: str, what: str) -> str:
    return str(stage_file(url, what)) if is_remote(url) else strip_file_scheme(url)


def _select_matching(
    patterns: tuple[str, ...], objects: Mapping[str, ObjectInfo]
) -> dict[str, ObjectInfo]:
    return {
        name: info
        for name, info in objects.items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    }


def _localize_patterns(value: str | list[str], what: str) -> str | list[str]:
    if isinstance(value, str):
        return ",".join(_localize_pattern(part.strip(), what) for part in value.split(","))
    return [
        ",".join(_localize_pattern(part.strip(), what) for part in text.split(","))
        for text in value
    ]


def _localize_pattern(text: str, what: str) -> str:
    if not is_remote(text):
        return strip_file_scheme(text)
    wild = _WILDCARDS.search(text)
    above = text[: wild.start() if wild else len(text)].rpartition("/")[0]
    pattern = text[len(above) + 1 :]
    return f"{_localize_directory(above, what, (pattern,))}/{pattern}"


@functools.cache
def _localize_checkpoint(url: str, what: str) -> str:
    if not is_remote(url):
        return strip_file_scheme(url)
    above, _, name = url.rstrip("/").rpartition("/")
    files = functools.partial(_select_matching, (f"{name}.index", f"{name}.data-*"))
    if above.count("/") >= 2:
        with contextlib.suppress(EmptyPathError):
            return str(stage(above, what, files) / name)
    # A directory. Its file `checkpoint` contains the name of the newest checkpoint.
    pointer = stage_file(f"{url.rstrip('/')}/checkpoint", what).read_text(encoding="utf-8")
    match = _POINTER.search(pointer)
    newest = (match[1] if match else "").removeprefix(f"{url.rstrip('/')}/")
    return str(stage(url, what, functools.partial(_select_matching, (f"{newest}.*",))) / newest)


_CONNECTIONS = 8
# The URL that each local directory is a copy of.
_origins: dict[Path, str] = {}
_Choose = Callable[[Mapping[str, ObjectInfo]], Mapping[str, ObjectInfo]]


def stage(url: str, what: str, choose: _Choose | None = None) -> Path:
    """Copies the objects below a URL to the local cache, and returns the local directory.

    A copy is reused if the size and version of the object have not changed. It gets the
    modification time of the object, so that comparisons of times give the same result on every
    machine. `choose` selects some of the objects. Raises EmptyPathError if the URL has no objects,
    PathError if it cannot be read, and StorageError if the store does not respond.
    """
    store = open_store(url, what)
    with blame_scope(what):
        objects: Mapping[str, ObjectInfo] = store.list()
        chosen = choose(objects) if choose else objects
        if not chosen:
            raise EmptyPathError(prefix_message(what, f"there is nothing at {store.url}"))
        return _update_copies(store, chosen, lambda name: name not in objects)


def origin_of(directory: Path) -> str | None:
    """Returns the URL that a local directory is a copy of, or None for any other directory."""
    for above in (directory, *directory.parents):
        if above in _origins:
            below = directory.relative_to(above).as_posix()
            return _origins[above] if below == "." else f"{_origins[above]}/{below}"
    return None


def stage_file(url: str, what: str) -> Path:
    """Copies one object to the local cache, and returns the local file.

    Raises PathError if the object does not exist or cannot be read.
    """
    above, _, name = url.rstrip("/").rpartition("/")
    store = open_store(above, what)
    with blame_scope(what):
        info = store.info(name)
        if info is None:
            raise PathError(prefix_message(what, f"there is no object {url}"), code="missing-file")
        return _update_copies(store, {name: info}, lambda name: False) / name


def _update_copies(
    store: ObjectStore, chosen: Mapping[str, ObjectInfo], is_gone: Callable[[str], bool]
) -> Path:
    """Updates the local copies of the chosen objects, and returns the local directory.

    Deletes the copies for which `is_gone` returns True.
    """
    target = url_cache_directory("staged", store.url)
    with lock_scope(target.parent):
        index = target.parent / "objects.json"
        known = _read_index(index)
        for name in filter(is_gone, [*known]):
            _join_inside(target, name).unlink(missing_ok=True)
            del known[name]
        _download_changed(store, target, chosen, known)
        part = index.with_name(f".{index.name}.{os.getpid()}")
        part.write_text(json.dumps(known), encoding="utf-8")
        part.replace(index)
    _origins[target] = store.url
    return target


def _download_changed(
    store: ObjectStore, target: Path, chosen: Mapping[str, ObjectInfo], known: dict[str, str]
) -> None:
    missing = {
        name: info
        for name, info in chosen.items()
        if known.get(name) != info.version or not _has_size(_join_inside(target, name), info.size)
    }
    size = sum(info.size for info in missing.values())
    progress = TransferProgress(f"downloading {store.url}", len(missing), size)

    def fetch(name: str) -> None:
        info = missing[name]
        path = _join_inside(target, name)
        store.download(name, path)
        if info.modified:
            os.utime(path, (info.modified, info.modified))
        progress.add(info.size)

    target.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(_CONNECTIONS) as pool:
        for name in missing:
            known.pop(name, None)
        for name, _ in zip(missing, pool.map(fetch, missing), strict=True):
            known[name] = missing[name].version


def _join_inside(target: Path, name: str) -> Path:
    parts = PurePosixPath(name).parts
    if ".." in parts or PurePosixPath(name).is_absolute():
        raise PathError(f"the object name {name!r} points outside its directory")
    return target.joinpath(*parts)


def _has_size(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False


def _read_index(path: Path) -> dict[str, str]:
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return index if isinstance(index, dict) else {}


@contextlib.contextmanager
def lock_scope(directory: Path) -> Iterator[None]:
    """Prevents processes on this machine from writing the same copies at the same time."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w", encoding="utf-8") as file:
        with contextlib.suppress(OSError):  # The file system does not support locks.
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def upload_scope(url: str, what: str, last: str = "") -> Iterator[Path]:
    """Yields an empty local directory, and uploads its files to `url` at the end of the block.

    `last` is the name of a file to upload after the others, such as the graph of a SavedModel,
    without which they are incomplete. Raises PathError if the URL is not supported or cannot be
    written, and StorageError if the store does not respond.
    """
    problem = path_problem(url, remote=True)
    if problem:
        raise PathError(problem, path=what)
    store = open_store(url, what)
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory)
        files = [path for path in Path(directory).rglob("*") if path.is_file()]
        with blame_scope(what):
            for path in sorted(files, key=lambda path: (path.name == last, path)):
                store.upload(path, path.relative_to(directory).as_posix())


_FIRST_SECONDS = 2.0
_INTERVAL_SECONDS = 5.0
_MEGABYTE = 1e6


class TransferProgress:
    """Logs the progress of a transfer, first after two seconds, then every five seconds.

    `what` describes it, such as `downloading s3://bucket/data`. `size` is the total in bytes.
    """

    def __init__(self, what: str, files: int, size: int) -> None:
        self._what = what
        self._files = files
        self._size = size
        self._done_files = self._done_size = 0
        self._next = time.monotonic() + _FIRST_SECONDS
        self._guard = threading.Lock()

    def add(self, size: int) -> None:
        """Counts a file of `size` bytes that has been transferred."""
        with self._guard:
            self._done_files += 1
            self._done_size += size
            self.report()

    def report(self) -> None:
        """Logs the progress if a report is due."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _INTERVAL_SECONDS
        text = (
            f"{self._what}: {self._done_files} of {self._files} files, "
            f"{self._done_size / _MEGABYTE:.1f} of {self._size / _MEGABYTE:.1f} MB"
        )
        # As `utils.log.detail`, which this layer cannot import.
        values = {"detail": text, "fraction": self._done_size / max(1, self._size)}
        logging.getLogger("orbit_runner").info(text, extra=values)
