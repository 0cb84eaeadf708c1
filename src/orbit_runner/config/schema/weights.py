"""When a setting can change the weights, for the argument `weights` of `field`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias

from orbit_runner.config.schema.task_data import declares_data

WholeConfig: TypeAlias = Any  # An `ExperimentConfig`, whose module imports this one.
Condition: TypeAlias = Callable[[WholeConfig], bool]


@dataclasses.dataclass(frozen=True)
class Weights:
    """When a setting can change the weights at a step, or the step of early stopping.

    Attributes:
        conditions: The setting can change them if one of these holds for the whole config.
        in_validation_data: Whether it can in `task.validation_data`, too.
    """

    conditions: tuple[Condition, ...]
    in_validation_data: bool = True


def when(*conditions: Condition) -> Weights:
    """Declares that a setting can change the weights only if a condition holds."""
    return Weights(conditions)


def in_training(*conditions: Condition) -> Weights:
    """Declares that a setting cannot change the weights in `task.validation_data`."""
    return Weights(conditions or ALWAYS.conditions, in_validation_data=False)


def rolls_back(config: WholeConfig) -> bool:
    """Returns whether a run restores a checkpoint after divergence."""
    return bool(config.trainer.rolls_back)


def uses_xla(config: WholeConfig) -> bool:
    """Returns whether steps are compiled with XLA."""
    return bool(config.runtime.enable_xla)


def races(config: WholeConfig) -> bool:
    """Returns whether ops that are not deterministic are allowed."""
    return not config.runtime.deterministic


def has_callbacks(config: WholeConfig) -> bool:
    """Returns whether there are callbacks, which can stop a run."""
    return bool(config.callbacks)


def stops_early(config: WholeConfig) -> bool:
    """Returns whether evaluations can stop training."""
    return config.trainer.early_stopping is not None or has_callbacks(config)


ALWAYS = when(lambda config: True)
NEVER = when()
# The devices, and how they work together. With logical replicas, the weights are the same on any
# number of devices.
DEVICES = when(lambda config: not config.runtime.logical_replicas)
# The location of the data. If the task declares its data, their content is recorded in `data.json`
# and compared on resume.
DATA_LOCATION = when(lambda config: not declares_data(config.task))
# With XLA, metrics are compiled together with the step.
METRICS = when(stops_early, uses_xla)
