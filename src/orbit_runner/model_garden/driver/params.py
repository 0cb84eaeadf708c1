"""Configs of Model Garden that a driver of a user's own hands to the runner."""

from __future__ import annotations

import dataclasses
import weakref
from typing import Any

import tensorflow as tf

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.model_garden.provider import adopt

# What a config was made of, by the identity of Model Garden's: that has no place for it.
_made_of: dict[int, ExperimentConfig] = {}


def from_driver(params: Any) -> ExperimentConfig:
    """Returns a config that a driver hands over, as one of this runner.

    Args:
        params: An experiment's config, of any of Model Garden's classes.

    Returns:
        The config, with the seed of the driver's `tf.random.set_seed`: its own has no place for it.

    Raises:
        ConfigError: It has values that cannot be, by the rules of this runner.
    """
    config, before = adopt(params), _made_of.get(id(params))
    # The driver has decided by now whether ops are deterministic, and it need not have.
    changes: dict[str, Any] = {"deterministic": False}
    seed, _ = tf.compat.v1.get_seed(None)
    if seed is not None:
        changes["seed"] = int(seed)
    runtime = config.runtime.replace(**changes)
    if before is None:
        return config.replace(runtime=runtime)
    return config.replace(
        name=before.name,
        official=before.official,
        runtime=_with_ours(runtime, before.runtime, params.runtime),
        trainer=_with_ours(config.trainer, before.trainer, params.trainer),
    )


def _with_ours(section: Any, before: Any, params: Any) -> Any:
    """Returns a section with the settings that were made and that Model Garden has no place for."""
    names = [f.name for f in dataclasses.fields(before) if f.name not in vars(params)]
    plain = type(before)()
    made = {name: getattr(before, name) for name in names}
    return section.replace(**{n: v for n, v in made.items() if v != getattr(plain, n)})


def remember(params: Any, config: ExperimentConfig) -> Any:
    """Keeps what a config was made of for as long as that is there.

    Args:
        params: A config of Model Garden's class.
        config: The config of this runner that it was made of.

    Returns:
        `params`.
    """
    _made_of[id(params)] = config
    weakref.finalize(params, _made_of.pop, id(params), None)
    return params


def to_driver(config: Any) -> Any:
    """Returns a config of this runner as Model Garden's own parts take it.

    Args:
        config: An `OfficialExperiment`.

    Returns:
        A config of Model Garden's class, not locked.
    """
    return config.for_task.replace()
