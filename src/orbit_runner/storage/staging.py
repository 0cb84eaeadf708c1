"""Copies remote objects to the local cache, and compares the copies with the store before use."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

from orbit_runner.storage.cache import url_cache_directory
from orbit_runner.storage.objects import (
    ObjectInfo,
    ObjectStore,
    blame_scope,
    open_store,
    prefix_message,
)
from orbit_runner.storage.paths import EmptyPathError, PathError
from orbit_runner.storage.progress import TransferProgress

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
        found: Mapping[str, ObjectInfo] = store.list()
        chosen = choose(found) if choose else found
        if not chosen:
            raise EmptyPathError(prefix_message(what, f"there is nothing at {store.url}"))
        return _update_copies(store, chosen, lambda name: name not in found)


def origin_of(folder: Path) -> str | None:
    """Returns the URL that a local directory is a copy of, or None for any other directory."""
    for above in (folder, *folder.parents):
        if above in _origins:
            below = folder.relative_to(above).as_posix()
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
            raise PathError(prefix_message(what, f"there is no object {url}"))
        return _update_copies(store, {name: info}, lambda name: False) / name


def _update_copies(
    store: ObjectStore, chosen: Mapping[str, ObjectInfo], is_gone: Callable[[str], bool]
) -> Path:
    """Updates the local copies of the chosen objects, and returns the local directory.

    Deletes the copies for which `is_gone` returns True.
    """
    target = url_cache_directory("staged", store.url)
    with _lock_scope(target.parent):
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
        info, path = missing[name], _join_inside(target, name)
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
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


@contextlib.contextmanager
def _lock_scope(folder: Path) -> Iterator[None]:
    """Prevents processes on this machine from writing the same copies at the same time."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w", encoding="utf-8") as file:
        with contextlib.suppress(OSError):  # The file system does not support locks.
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
