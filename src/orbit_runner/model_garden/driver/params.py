"""Converts between the configs of Model Garden that drivers use and configs of this runner."""

from __future__ import annotations

import dataclasses
import weakref
from typing import TYPE_CHECKING, TypeVar

import tensorflow as tf

from orbit_runner.config.schema.experiment import ExperimentConfig

if TYPE_CHECKING:
    from official.modeling import hyperparams

    from orbit_runner.config.schema.runtime import RuntimeConfig
    from orbit_runner.config.schema.trainer import TrainerConfig

_Section = TypeVar("_Section", "RuntimeConfig", "TrainerConfig")
# Maps the id of a config of Model Garden, which cannot store it, to the config that it was made
# from.
_sources: dict[int, ExperimentConfig] = {}


def to_runner_config(params: ExperimentConfig | hyperparams.Config) -> ExperimentConfig:
    """Returns a config of this runner or of Model Garden as a config of this runner.

    Raises ConfigError if this runner does not allow a value.
    """
    return params if isinstance(params, ExperimentConfig) else from_driver(params)


def from_driver(params: hyperparams.Config) -> ExperimentConfig:
    """Returns a config of any of Model Garden's classes, from a driver, as one of this runner.

    Its seed is that of the driver's `tf.random.set_seed`, because Model Garden's config has no
    seed. Raises ConfigError if this runner does not allow a value.
    """
    from orbit_runner.model_garden.provider import from_model_garden

    config = from_model_garden(params)
    before = _sources.get(id(params))
    # The driver has already decided whether ops are deterministic.
    changes: dict[str, bool | int] = {"deterministic": False}
    seed, _ = tf.compat.v1.get_seed(None)
    if seed is not None:
        changes["seed"] = int(seed)
    runtime = config.runtime.replace(**changes)
    if before is None:
        return config.replace(runtime=runtime)
    return config.replace(
        name=before.name,
        official=before.official,
        runtime=_restore_own_settings(runtime, before.runtime, params.runtime),
        trainer=_restore_own_settings(config.trainer, before.trainer, params.trainer),
    )


def _restore_own_settings(
    section: _Section, before: _Section, params: hyperparams.Config
) -> _Section:
    """Returns a section with the earlier values of settings that Model Garden does not have."""
    names = [f.name for f in dataclasses.fields(before) if f.name not in vars(params)]
    plain = type(before)()
    values = {name: getattr(before, name) for name in names}
    return section.replace(**{n: v for n, v in values.items() if v != getattr(plain, n)})


def remember_source(params: hyperparams.Config, config: ExperimentConfig) -> hyperparams.Config:
    """Stores the config that a config of Model Garden was made from, and returns `params`.

    The entry is removed when `params` is garbage collected.
    """
    _sources[id(params)] = config
    weakref.finalize(params, _sources.pop, id(params), None)
    return params


def to_driver(config: ExperimentConfig) -> hyperparams.Config:
    """Returns an `OfficialExperiment` as an unlocked config of Model Garden's class."""
    return config.for_task.replace()
