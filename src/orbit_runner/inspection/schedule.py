"""The schedule of a run: steps, evaluations, checkpoints and learning rates."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from typing import TYPE_CHECKING

import tensorflow as tf

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.errors import DataError
from orbit_runner.state.learning_rates import learning_rates
from orbit_runner.tasks.adapter import TaskAdapter
from orbit_runner.train.schedule import Plan

if TYPE_CHECKING:
    from orbit_runner.state.learning_rates import Optimizer


_POINTS = 400


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The schedule of a run.

    Attributes:
        train_steps: The number of steps.
        epochs: The number of epochs; None if unknown.
        examples: The number of examples, with repetitions; None if unknown.
        evaluations: The number of evaluations.
        validation_steps: The number of batches of an evaluation; None if unknown.
        checkpoints: The number of checkpoints that are saved.
        rates: For each optimizer, the learning rates by step.
    """

    train_steps: int
    epochs: float | None
    examples: float | None
    evaluations: int
    validation_steps: int | None
    checkpoints: int
    rates: dict[str, dict[int, float]]

    def landmarks(self, name: str) -> dict[str, tuple[int, float]]:
        """Returns step and learning rate at the start, the peak and the end."""
        curve = self.rates[name]
        peak = max(curve, key=lambda step: curve[step])
        first, last = min(curve), max(curve)
        marks = {"start": first, "peak": peak, "end": last}
        return {kind: (step, curve[step]) for kind, step in marks.items()}


def make_schedule(
    config: ExperimentConfig, adapter: TaskAdapter, plan: Plan, optimizer: Optimizer
) -> Schedule:
    """Returns the schedule of a plan; the step of the optimizer is set, and reset afterwards."""
    data = config.for_task.task
    validation_steps = -1  # unknown
    with contextlib.suppress(DataError):
        validation_steps = adapter.validation_steps(
            getattr(data, "validation_data", None), config.trainer.validation_steps
        )
    steps = plan.train_steps
    examples_per_step = adapter.examples_per_step(getattr(data, "train_data", None))
    return Schedule(
        train_steps=steps,
        epochs=steps / plan.steps_per_epoch if plan.steps_per_epoch else None,
        examples=steps * examples_per_step or None,
        evaluations=_count(steps, plan.validation_interval),
        validation_steps=validation_steps if validation_steps >= 0 else None,
        checkpoints=_count(steps, plan.checkpoint_interval),
        rates=rate_curves(optimizer, steps),
    )


def rate_curves(optimizer: Optimizer, steps: int) -> dict[str, dict[int, float]]:
    """Returns the learning rates from the first to the last step, by name and step.

    The rate of step n is the one with which that step updates the weights, counted from 0.
    """
    count = min(_POINTS, max(steps, 1))
    last = max(steps - 1, 0)
    at = sorted({round(last * index / max(count - 1, 1)) for index in range(count)})
    before = int(optimizer.iterations.numpy())
    curves: dict[str, dict[int, float]] = {}
    try:
        for step in at:
            _set_step(optimizer, step)
            for name, rate in learning_rates(optimizer).items():
                curves.setdefault(name, {})[step] = float(rate)
    finally:
        _set_step(optimizer, before)
    return curves


def _set_step(optimizer: Optimizer, step: int) -> None:
    for part in (optimizer, *getattr(optimizer, "optimizers", ())):
        if isinstance(part.iterations, tf.Variable) or hasattr(part.iterations, "assign"):
            part.iterations.assign(step)


def _count(steps: int, interval: int) -> int:
    """Returns how many steps are multiples of an interval or the last."""
    return math.ceil(steps / interval) if interval else 1
