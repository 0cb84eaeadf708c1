"""Finds settings of an experiment that contain paths, and checks the paths.

Works on any tree of dataclasses, so it does not need the config package or Model Garden.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from orbit_runner.storage.paths import path_problem, scheme_of

_LOCAL_USE = "files are written to it directly: use a path on this machine"
_GARDEN_USE = (
    "Model Garden's pipelines can read only gs:// and local files; copy the files to either"
)


def path_problems(config: Any) -> Iterator[tuple[str, str]]:
    """Yields (dotted path, message) for each setting with a path that cannot be used."""
    garden = bool(getattr(config, "official", ""))
    for path, kind, text in _url_values(config, "", ""):
        problem = _setting_problem(kind, text, garden)
        if problem:
            yield path, problem


def _setting_problem(kind: str, text: str, garden: bool) -> str:
    if not kind:
        return ""
    if kind == "local":
        return path_problem(text, remote=False, use=_LOCAL_USE)
    if garden and kind != "checkpoint":
        return path_problem(text, remote=scheme_of(text) == "gs", use=_GARDEN_USE)
    return path_problem(text, remote=True)


def _url_values(value: Any, path: str, kind: str) -> Iterator[tuple[str, str, str]]:
    """Yields (dotted path, declared kind of path, path) for each string that contains URLs."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            below = f"{path}.{field.name}" if path else field.name
            declared = field.metadata.get("path", "")
            yield from _url_values(getattr(value, field.name), below, declared)
    elif isinstance(value, str) and "://" in value:
        # A string may contain several paths, separated by commas.
        yield from ((path, kind, part.strip()) for part in value.split(",") if part.strip())
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _url_values(item, f"{path}[{index}]", kind)
