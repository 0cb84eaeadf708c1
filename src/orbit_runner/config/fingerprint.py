"""Determines which settings can affect the weights, and computes a fingerprint of them.

The weights at a step depend on the settings and on the step. Settings that only determine when to
evaluate, what to keep or how fast the input pipeline runs do not identify a run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from orbit_runner.config.example_ids import EXCLUDE, UNREADABLE, ids_digest
from orbit_runner.config.schema.base import Config
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.weights import ALWAYS, DATA_LOCATION, NEVER, Weights
from orbit_runner.config.serialize import flat_settings, plain_value
from orbit_runner.errors import RunnerError
from orbit_runner.registry import TASKS, Entry


@dataclasses.dataclass(frozen=True)
class _Declaration:
    """What the fingerprint needs to know about a setting."""

    weights: Weights = ALWAYS
    # The value that means the behavior of versions without the setting, if there were any.
    earlier: Any = ...

    def is_omitted(self, value: Any) -> bool:
        """Returns whether a value means the behavior of versions without the setting."""
        return value == self.earlier or not (value or self.earlier)


def cannot_affect_weights(path: str) -> bool:
    """Returns whether a setting cannot change the weights, whatever the other settings are."""
    return not _declared_settings(TASKS.registered()).get(path, _Declaration()).weights.conditions


def can_affect_weights(path: str, config: ExperimentConfig) -> bool:
    """Returns whether a setting can change the weights at a step, or the step of early stopping.

    `config` matters because some settings have an effect only in combination with others. Unknown
    settings, such as those of a custom task, can change the weights.
    """
    return any(condition(config) for condition in _declaration(path, config).weights.conditions)


def is_data_location(path: str, config: ExperimentConfig) -> bool:
    """Returns whether a setting is the directory of a dataset."""
    return _declaration(path, config).weights == DATA_LOCATION


def identity_settings(config: ExperimentConfig) -> dict[str, Any]:
    """Returns the values of the settings that can affect the weights, by dotted path.

    For examples to exclude, the value is a digest of the IDs, whether a file lists them or not.
    """
    return {
        path: ids_digest(value) if path == EXCLUDE and value else value
        for path, value in flat_settings(config).items()
        if can_affect_weights(path, config) and not _declaration(path, config).is_omitted(value)
    }


def _declaration(path: str, config: ExperimentConfig) -> _Declaration:
    """Returns the declaration of a setting.

    Sections that mirror a class of Model Garden declare nothing. Their settings, and those that the
    config does not have, are like those with the same path in this package's classes.
    """
    section: Any = config
    field: Any = None
    weights = ALWAYS
    for name in path.split("."):
        field = getattr(section, "__dataclass_fields__", {}).get(name)
        if field is None or "weights" not in field.metadata:
            return _declared_settings(TASKS.registered()).get(path, _Declaration())
        weights = field.metadata["weights"] or weights
        section = getattr(section, name)
    return _at(path, weights, field)


def _at(path: str, weights: Weights, field: dataclasses.Field[Any]) -> _Declaration:
    if not weights.in_validation_data and path.startswith("task.validation_data."):
        weights = NEVER
    later = field.metadata.get("added_later")
    return _Declaration(weights, _default(field) if later else ...)


@functools.cache
def _declared_settings(tasks: tuple[Entry, ...]) -> dict[str, _Declaration]:
    """Returns the declarations of the settings of all tasks, by dotted path."""
    found: dict[str, _Declaration] = {}

    def add(section: Config, prefix: str, above: Weights) -> None:
        for field in dataclasses.fields(section):
            path, value = f"{prefix}{field.name}", getattr(section, field.name)
            weights = field.metadata.get("weights") or above
            if isinstance(value, Config):
                add(value, f"{path}.", weights)
            elif not field.metadata.get("unsupported"):
                declared = _at(path, weights, field)
                if found.setdefault(path, declared) != declared:
                    found[path] = _Declaration()  # Two tasks have different settings of this name.

    add(ExperimentConfig(), "", ALWAYS)
    for entry in tasks:
        with contextlib.suppress(RunnerError):
            add(entry.load_config()(name=entry.name), "task.", ALWAYS)
    return found


def settings_fingerprint(settings: Mapping[str, Any]) -> str:
    """Returns the SHA-256 of settings from `identity_settings`, as 64 hexadecimal digits."""
    text = json.dumps(settings, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def config_fingerprint(config: ExperimentConfig) -> str:
    """Returns the SHA-256 of the settings that can affect the weights, as 64 hexadecimal digits.

    It does not change if a run is resumed with more steps, more frequent checkpoints or more
    prefetching. It is the same in any process, and for the `config.yaml` of the run. A version of
    this package that adds a setting changes it; `has_same_settings` also accepts earlier versions.
    """
    return settings_fingerprint(identity_settings(config))


def is_fingerprint_of(fingerprint: str, config: ExperimentConfig) -> bool:
    """Returns whether a fingerprint matches a resolved config.

    It may be from an earlier version, which included the data directories.
    """
    settings = identity_settings(config)
    if fingerprint == settings_fingerprint(settings):
        return True
    all_settings = flat_settings(config)
    earlier = {p: value for p, value in all_settings.items() if is_data_location(p, config)}
    return fingerprint == settings_fingerprint(settings | earlier)


def has_same_settings(before: Mapping[str, Any], config: ExperimentConfig) -> bool:
    """Returns whether the settings that can affect the weights are the same as before.

    `before` is a result of `identity_settings`, possibly of an earlier version. A setting that it
    does not contain must have its default now.
    """
    now, all_settings = identity_settings(config), flat_settings(config)
    for path in {*before, *now}:
        if path in before and path in now:
            # A file that is gone is needed to train, but not to read what was trained.
            same = before[path] == now[path] or now[path] == UNREADABLE
        elif path in now:
            same = now[path] == default_of(config, path)
        else:  # This version may know that it cannot affect the weights.
            same = path in all_settings and not can_affect_weights(path, config)
        if not same:
            return False
    return True


def default_of(config: ExperimentConfig, path: str) -> Any:
    """Returns the default of a setting in the form of `flat_settings`, or `...` if it has none."""
    section: Any = config
    *parents, name = path.split(".")
    for parent in parents:
        section = getattr(section, parent)
    return _default(section.__dataclass_fields__[name])


def _default(field: dataclasses.Field[Any]) -> Any:
    default = field.default
    if field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    return ... if default is dataclasses.MISSING else plain_value(default)


def excludes_same_examples(before: ExperimentConfig, now: ExperimentConfig) -> bool:
    """Returns whether two configs exclude the same IDs from training, in a file or in a list."""
    left, right = (flat_settings(config).get(EXCLUDE) or () for config in (before, now))
    return left == right or (ids_digest(left) == ids_digest(right) != UNREADABLE)
