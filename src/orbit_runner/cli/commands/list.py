"""`runner list`: lists what can be run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from orbit_runner.cli.command import Command, emit
from orbit_runner.cli.flags.config_flags import IMPORT
from orbit_runner.cli.flags.rows import switch
from orbit_runner.config.errors import Origin
from orbit_runner.config.parsing.bases import load_description
from orbit_runner.config.parsing.search_path import experiment_files, fragment_files
from orbit_runner.config.resolve import import_modules
from orbit_runner.config.schema.modes import FINE_TUNING, MODES
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.config.schema.strategies import STRATEGIES
from orbit_runner.distribute.tf_environment import prepare_environment
from orbit_runner.errors import RunnerError
from orbit_runner.model_garden import catalogue, loading
from orbit_runner.registration import Registry
from orbit_runner.registry import (
    ARRAY_SOURCES,
    IMAGE_MODELS,
    RATING_MODELS,
    RATING_SOURCES,
    SOURCES,
    TABLE_MODELS,
    TABLE_SOURCES,
    TASKS,
    TEXT_MODELS,
    TEXT_SOURCES,
)
from orbit_runner.utils.text_table import described_lines, terminal_width

_ALL_MODES = (*MODES, FINE_TUNING)
# The line that tells editors where the JSON Schema of a file is.
_MODELINE = "# yaml-language-server:"


def main(flags: argparse.Namespace) -> int:
    """Prints experiments, fragments, tasks, models, data sources and strategies. Returns 0."""
    if flags.official:
        prepare_environment(RuntimeConfig())  # The imported modules may import TensorFlow.
    import_modules(flags.imports or (), Origin("--import"))
    entries = _official_experiments() if flags.official else _all_entries()
    return emit(flags, entries, _lines(entries))


def _all_entries() -> dict[str, dict[str, str]]:
    return {
        "experiments": {name: _read_description(path) for name, path in experiment_files().items()},
        "fragments": {name: _read_description(path) for name, path in fragment_files().items()},
        "tasks": _describe_entries(TASKS),
        "models of image_classification": _describe_entries(IMAGE_MODELS),
        "models of translation": _describe_entries(TEXT_MODELS),
        "models of recommendation": _describe_entries(RATING_MODELS),
        "models of tabular": _describe_entries(TABLE_MODELS),
        "data sources of image_classification": _describe_entries(SOURCES),
        "data sources of translation": _describe_entries(TEXT_SOURCES),
        "data sources of recommendation": _describe_entries(RATING_SOURCES),
        "data sources of tabular": _describe_entries(TABLE_SOURCES),
        "data sources of keras": _describe_entries(ARRAY_SOURCES),
        "strategies": dict.fromkeys(STRATEGIES, ""),
        "modes": dict.fromkeys(_ALL_MODES, ""),
    }


def _describe_entries(registry: Registry) -> dict[str, str]:
    return {entry.name: entry.help for entry in registry.entries()}


def _lines(entries: dict[str, dict[str, str]]) -> Iterator[str]:
    for number, (kind, names) in enumerate(entries.items()):
        yield from [""] * bool(number)
        yield from (f"{kind}:", *described_lines(names, terminal_width()))


def _read_description(path: Path) -> str:
    """Returns a file's `description`, or the first line of its leading comment."""
    try:
        described = load_description(path)
    except RunnerError:  # A base may be in an object store that does not respond.
        return "(does not parse; see `runner show --check`)"
    if described:
        return described
    lines = path.read_text(encoding="utf-8").splitlines()
    if lines and lines[0].startswith(_MODELINE):
        del lines[0]
    return lines[0].lstrip("# ") if lines and lines[0].startswith("#") else ""


def _official_experiments() -> dict[str, dict[str, str]]:
    """Returns the experiments that Model Garden registers, grouped by kind, as name to module.

    Reads the sources of Model Garden without importing them, so it does not find out whether they
    can be imported. Those that modules given by `--import` register are a separate kind.
    """
    theirs = {name: entry.module for name, entry in catalogue.experiments().items()}
    own = {name: module for name, module in _registered_names().items() if name not in theirs}
    kinds = {"experiments of Model Garden": theirs, "registered elsewhere": own}
    return {
        kind: {f"{catalogue.PREFIX}{name}": text for name, text in sorted(names.items())}
        for kind, names in kinds.items()
        if names
    }


def _registered_names() -> dict[str, str]:
    if "official.core.exp_factory" not in sys.modules:
        return {}  # Nothing is registered, and a lookup would import TensorFlow.
    return {name: factory.__module__ for name, factory in loading.registered_factories()}


COMMAND = Command(
    "list",
    "List experiments, fragments, tasks, models, data sources, strategies and modes.",
    [
        switch("--json", "print JSON that maps each kind to {name: description}"),
        IMPORT,
        switch("--official", "list the experiments of Model Garden instead"),
    ],
    ["--official"],
    main,
)
