"""Makes the paths of an experiment local: expands `~`, and copies remote files."""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import functools
import os
import re
from collections.abc import Mapping
from typing import Any

from orbit_runner.errors import SettingError
from orbit_runner.storage.objects import ObjectInfo
from orbit_runner.storage.paths import EmptyPathError, PathError, is_remote, strip_file_scheme
from orbit_runner.storage.staging import stage, stage_file

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


def local_checkpoint(path: str, what: str = "task.init_checkpoint") -> str:
    """Returns the local path of a checkpoint or of its directory. Copies a remote one first.

    Raises SettingError if the URL has no content or cannot be read.
    """
    try:
        return _localize_checkpoint(path, what)
    except PathError as error:
        raise SettingError(what, str(error).removeprefix(f"{what}: ")) from error


def local_file(path: str, what: str) -> str:
    """Returns the local path of a file. Copies a remote one first.

    Raises SettingError if the URL has no content or cannot be read.
    """
    try:
        return _localize_file(os.path.expanduser(path), what)
    except PathError as error:
        raise SettingError(what, str(error).removeprefix(f"{what}: ")) from error


def _localize_section(section: Any, path: str, *, data: bool) -> Any:
    """Returns a section with local paths, or the same object if nothing changes."""
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(section):
        value, below = getattr(section, field.name), f"{path}.{field.name}"
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            new = _localize_section(value, below, data=data)
        else:
            new = _localize_value(section, field, value, below, data=data)
        if new is not value:
            changes[field.name] = new
    return dataclasses.replace(section, **changes) if changes else section


def _localize_value(
    section: Any, field: dataclasses.Field[Any], value: Any, path: str, *, data: bool
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
        raise SettingError(path, reason) from error
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


def _has_url(value: Any) -> bool:
    texts = [value] if isinstance(value, str) else value if isinstance(value, (list, tuple)) else ()
    return any(isinstance(text, str) and "://" in text for text in texts)


def _needed_files(section: Any, name: str) -> tuple[str, ...]:
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
    patterns: tuple[str, ...], found: Mapping[str, ObjectInfo]
) -> dict[str, ObjectInfo]:
    return {
        name: info
        for name, info in found.items()
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
