"""Makes the paths of an experiment local: expands `~`, and copies remote files to a local cache."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import fnmatch
import functools
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from orbit_runner.errors import SettingError, format_count
from orbit_runner.storage.objects import ObjectStore, Stat, file_stat
from orbit_runner.storage.paths import PathError, is_remote, url_cache_directory

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
    task = _localize_section(config.task, "task", copies_data)
    return config if task is config.task else config.replace(task=task)


def local_checkpoint(path: str) -> str:
    """Returns the local path of a checkpoint or of its directory, after copying a remote one.

    Raises SettingError if the URL has no content or cannot be read.
    """
    with _setting_scope("task.init_checkpoint"):
        return _local_checkpoint(path)


def local_file(path: str, what: str) -> str:
    """Returns the local path of a file, after copying a remote one.

    Raises SettingError if the URL has no content or cannot be read.
    """
    with _setting_scope(what):
        return _local_file(os.path.expanduser(path))


@contextlib.contextmanager
def _setting_scope(path: str) -> Iterator[None]:
    try:
        yield
    except PathError as error:
        raise SettingError(path, error.reason, code=error.code) from error


def _localize_section(section: Any, path: str, data: bool) -> Any:
    """Returns a section with local paths, or the same object if nothing changes."""
    changes: dict[str, object] = {}
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        below = f"{path}.{field.name}"
        if dataclasses.is_dataclass(value):
            new = _localize_section(value, below, data)
        else:
            with _setting_scope(below):
                new = _localize_value(section, field, value, data)
        if new is not value:
            changes[field.name] = new
    return dataclasses.replace(section, **changes) if changes else section


def _localize_value(section: Any, field: dataclasses.Field[Any], value: Any, data: bool) -> Any:
    kind = field.metadata.get("path")
    texts = [value] if isinstance(value, str) else value
    if not kind or not isinstance(texts, (list, tuple)):
        return value
    is_text = isinstance(value, str)
    if any("~" in str(text) for text in texts):
        texts = [_map_parts(os.path.expanduser, text) for text in texts]
        value = texts[0] if is_text else texts
    if not any("://" in str(text) for text in texts):
        return value
    if kind == "checkpoint":
        return _local_checkpoint(value)
    if data and kind == "dir":
        return _local_directory(value, *_needed_files(section, field.name))
    if data and kind == "patterns":
        texts = [_map_parts(_local_pattern, text) for text in texts]
        return texts[0] if is_text else texts
    if data and kind == "file":
        return _local_file(value)
    return value


def _map_parts(function: Callable[[str], str], text: Any) -> Any:
    """Applies a function to the paths in a text, which are separated by commas."""
    if not isinstance(text, str):
        return text
    return ",".join(function(part.strip()) for part in text.split(","))


def _needed_files(section: Any, name: str) -> tuple[str, ...]:
    """Returns patterns of the files that a section reads in one of its directories; () for all."""
    if name == "tfds_data_dir":
        tfds = str(getattr(section, "tfds_name", "")).partition(":")[0]
        return (f"{tfds}/*",) if tfds else ()
    if name != "data_dir" or getattr(section, "source", "") == "image_csv":
        return ()  # `input_path` is a directory, and the CSV files may be outside of it.
    input_path = getattr(section, "input_path", "") or ""
    parts = ",".join([input_path] if isinstance(input_path, str) else input_path).split(",")
    return tuple(part.strip() for part in parts if part.strip() and "://" not in part)


@functools.cache
def _local_directory(path: str, *patterns: str) -> str:
    return str(stage(path, *patterns)) if is_remote(path) else path


@functools.cache
def _local_file(path: str) -> str:
    return str(stage_file(path)) if is_remote(path) else path


def _local_pattern(text: str) -> str:
    if not is_remote(text):
        return text
    wild = _WILDCARDS.search(text)
    above = text[: wild.start() if wild else len(text)].rpartition("/")[0]
    pattern = text[len(above) + 1 :]
    return f"{_local_directory(above, pattern)}/{pattern}"


@functools.cache
def _local_checkpoint(path: str) -> str:
    if not is_remote(path):
        return path
    url = path.rstrip("/")
    above, _, name = url.rpartition("/")
    if above.count("/") >= 2:
        with contextlib.suppress(EmptyPathError):
            return str(stage(above, f"{name}.index", f"{name}.data-*") / name)
    # A directory. Its file `checkpoint` contains the name of the newest checkpoint.
    match = _POINTER.search(stage_file(f"{url}/checkpoint").read_text(encoding="utf-8"))
    newest = (match[1] if match else "").removeprefix(f"{url}/")
    return str(stage(url, f"{newest}.*") / newest)


class EmptyPathError(PathError):
    """A URL below which there are no objects."""

    code = "missing-file"


def stage(url: str, *patterns: str) -> Path:
    """Copies the objects below a URL to the local cache, and returns the local directory.

    Objects that have a copy are not downloaded again. `patterns` select some of the objects. Raises
    EmptyPathError if there are none, PathError if they cannot be read, and StorageError if the
    store does not respond.
    """
    store = ObjectStore(url)
    objects = store.list()
    chosen = {
        name: stat
        for name, stat in objects.items()
        if not patterns or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    }
    if not chosen:
        raise EmptyPathError(f"there is nothing at {store.url}")
    target = url_cache_directory("staged", store.url)
    for path in target.rglob("*"):
        if path.is_file() and path.relative_to(target).as_posix() not in objects:
            path.unlink(missing_ok=True)
    return copy_objects(store, chosen, target)


def stage_file(url: str) -> Path:
    """Copies one object to the local cache, and returns the local file.

    Raises PathError if the object does not exist or cannot be read.
    """
    above, _, name = url.rstrip("/").rpartition("/")
    store = ObjectStore(above)
    target = url_cache_directory("staged", store.url)
    return copy_objects(store, {name: store.stat(name)}, target) / name


def copy_objects(store: ObjectStore, objects: Mapping[str, Stat], target: Path) -> Path:
    """Downloads objects to a directory, unless they are there, and returns the directory.

    A copy has the size and the modification time of its object, on every machine.
    """
    with lock_scope(target.parent):
        paths = {}
        for name, stat in objects.items():
            path = target / name
            if not path.resolve().is_relative_to(target.resolve()):
                raise PathError(f"the object name {name!r} points outside its directory")
            if not path.is_file() or file_stat(path) != stat:
                paths[name] = path
        if paths:
            size = sum(objects[name][0] for name in paths) / 1e6
            text = f"downloading {store.url}: {format_count(len(paths), 'file')}, {size:.1f} MB"
            # As `utils.log.detail`, which this layer cannot import.
            logging.getLogger("orbit_runner").info(text, extra={"detail": text, "fraction": 0.0})
            store.download(paths)
        for name, path in paths.items():
            os.utime(path, ns=(objects[name][1], objects[name][1]))
    return target


@contextlib.contextmanager
def lock_scope(directory: Path) -> Iterator[None]:
    """Prevents processes on this machine from writing the same copies at the same time."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w", encoding="utf-8") as file:
        with contextlib.suppress(OSError):  # The file system does not support locks.
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
