"""Finds settings of an experiment that contain paths, and checks the paths.

Works on any tree of dataclasses, so it does not need the config package or Model Garden.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from orbit_runner.storage.paths import path_problem, scheme_of

# This package's tasks read these from object stores, too.
EXCLUDED = "exclude"
STAGED = (
    *("data_dir", "input_path", "tfds_data_dir", "sentencepiece_model_path"),
    *("labels_file", "classes_file", EXCLUDED),
)
CHECKPOINT = "init_checkpoint"
_LOCAL = {
    "xla_cache_dir": "XLA writes to it directly: use a path on this machine",
    "best_checkpoint_export_subdir": "use the name of a directory inside the run directory",
    "export_subdir": "use the name of a directory inside the run directory",
    "validation_summary_subdir": "use the name of a directory inside the run directory",
}
_GARDEN_USE = (
    "Model Garden's pipelines can read only gs:// and local files; copy the files to either"
)


def path_problems(config: Any) -> Iterator[tuple[str, str]]:
    """Yields (dotted path, message) for each setting with a path that cannot be used."""
    garden = bool(getattr(config, "official", ""))
    for path, name, text in _url_values(config, ""):
        problem = _setting_problem(name, text, garden)
        if problem:
            yield path, problem


def _setting_problem(name: str, text: str, garden: bool) -> str:
    if name in _LOCAL:
        return path_problem(text, remote=False, use=_LOCAL[name])
    if name == CHECKPOINT:
        return path_problem(text, remote=True)
    if name in STAGED and garden:
        return path_problem(text, remote=scheme_of(text) == "gs", use=_GARDEN_USE)
    if name in STAGED:
        return path_problem(text, remote=True)
    return ""


def _url_values(value: Any, path: str) -> Iterator[tuple[str, str, str]]:
    """Yields (dotted path, name of the setting, path) for each string that contains URLs."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            child = getattr(value, field.name)
            yield from _url_values(child, f"{path}.{field.name}" if path else field.name)
        return
    name = path.rpartition(".")[2].partition("[")[0]
    if isinstance(value, str) and "://" in value:
        # A string may contain several paths, separated by commas.
        yield from ((path, name, part.strip()) for part in value.split(",") if part.strip())
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _url_values(item, f"{path}[{index}]")
