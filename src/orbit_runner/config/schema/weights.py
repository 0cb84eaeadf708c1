"""When a setting can change the weights, for the argument `weights` of `field`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbit_runner.config.schema.experiment import ExperimentConfig

    Condition = Callable[[ExperimentConfig], bool]


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


def rolls_back(config: ExperimentConfig) -> bool:
    """Returns whether a run restores a checkpoint after divergence."""
    return config.trainer.recovery_max_trials > 0


def skips_nonfinite_steps(config: ExperimentConfig) -> bool:
    """Returns whether steps that are not finite are left out."""
    return config.trainer.on_nonfinite == "skip"


def uses_xla(config: ExperimentConfig) -> bool:
    """Returns whether steps are compiled with XLA."""
    return bool(config.runtime.enable_xla)


def has_no_logical_replicas(config: ExperimentConfig) -> bool:
    """Returns whether the weights depend on the devices and how they work together."""
    return not config.runtime.logical_replicas


def races(config: ExperimentConfig) -> bool:
    """Returns whether ops that are not deterministic are allowed."""
    return not config.runtime.deterministic


def compares_no_data(config: ExperimentConfig) -> bool:
    """Returns whether a run cannot detect that another directory holds the same data."""
    return not config.task.compares_data


def has_callbacks(config: ExperimentConfig) -> bool:
    """Returns whether there are callbacks, which can stop a run."""
    return bool(config.callbacks)


def stops_early(config: ExperimentConfig) -> bool:
    """Returns whether evaluations can stop training."""
    return config.trainer.early_stopping is not None or has_callbacks(config)


ALWAYS = when(lambda config: True)
NEVER = when()
# The devices, and how they work together. With logical replicas, the weights are the same on any
# number of devices.
DEVICES = when(has_no_logical_replicas)
# The location of the data. Its content is recorded in `data.json` and compared on resume.
DATA_LOCATION = when(compares_no_data)
# With XLA, metrics are compiled together with the step.
METRICS = when(stops_early, uses_xla)
