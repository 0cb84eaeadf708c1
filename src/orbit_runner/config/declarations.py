"""What settings declare about themselves, by dotted path."""

from __future__ import annotations

import contextlib
import functools
from typing import TypeAlias

from orbit_runner.config.schema.base import Config
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.weights import ALWAYS, NEVER, Weights
from orbit_runner.config.walk import nodes
from orbit_runner.errors import RunnerError
from orbit_runner.registration import Entry
from orbit_runner.registry import TASKS

# When a setting can change the weights, and what kind of path it is; see `field`.
_Declared: TypeAlias = tuple[Weights, str]


def weights_of(path: str, config: ExperimentConfig) -> Weights:
    """Returns when a setting can change the weights.

    Sections that mirror a class of Model Garden declare nothing. Their settings, and those that the
    config does not have, are like those with the same path in this package's classes.
    """
    section: object = config
    weights = ALWAYS
    for name in path.split("."):
        field = getattr(section, "__dataclass_fields__", {}).get(name)
        if field is None or "help" not in field.metadata or field.metadata.get("merged"):
            return known_weights(path) or ALWAYS
        weights = field.metadata.get("weights", weights)
        section = getattr(section, name)
    return _at(path, weights)


def _at(path: str, weights: Weights) -> Weights:
    is_validation = path.startswith("task.validation_data.")
    return NEVER if is_validation and not weights.in_validation_data else weights


def known_weights(path: str) -> Weights | None:
    """Returns when a setting of the registered tasks can change the weights; None if none has it.

    If their declarations differ, it always can.
    """
    declared = _declarations(TASKS.registered()).get(path)
    return declared and declared[0]


def path_kind(name: str) -> str:
    """Returns what kind of path this package's settings of a name are; "" if they are none.

    `name` is the last part of the dotted path. For sections that mirror a class of Model Garden.
    """
    return _path_kinds(TASKS.registered()).get(name, "")


@functools.cache
def _path_kinds(tasks: tuple[Entry, ...]) -> dict[str, str]:
    declared = _declarations(tasks).items()
    return {path.rpartition(".")[2]: kind for path, (_, kind) in declared if kind}


@functools.cache
def _declarations(tasks: tuple[Entry, ...]) -> dict[str, _Declared]:
    by_path: dict[str, _Declared] = {}

    def add(section: Config, path: str, above: Weights) -> None:
        for node in nodes(section, path):
            meta = node.field.metadata
            weights = meta.get("weights") or above
            if isinstance(node.value, Config):
                add(node.value, node.path, weights)
            elif not meta.get("unsupported"):
                declared = (_at(node.path, weights), meta.get("path", ""))
                if by_path.setdefault(node.path, declared) != declared:
                    by_path[node.path] = (ALWAYS, "")  # Two tasks declare it differently.

    add(ExperimentConfig(), "", ALWAYS)
    for entry in tasks:
        with contextlib.suppress(RunnerError):
            add(entry.load_config()(name=entry.name), "task", ALWAYS)
    return by_path
