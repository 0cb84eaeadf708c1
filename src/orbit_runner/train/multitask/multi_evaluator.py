"""Evaluates one model on several tasks."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any

import orbit
import tensorflow as tf

from orbit_runner.state.train_state import TrainState
from orbit_runner.train.evaluator import Evaluator


@dataclasses.dataclass(frozen=True)
class TaskEvaluator:
    """The evaluator of one task."""

    evaluator: Evaluator
    steps: int | None  # None: as many batches as `MultiEvaluator.evaluate` is called with


class MultiEvaluator(orbit.AbstractEvaluator):
    """Evaluates one task after another, on the averaged weights if an average is kept.

    The evaluators of the tasks must not swap weights themselves.
    """

    def __init__(self, evaluators: Mapping[str, TaskEvaluator], state: TrainState) -> None:
        self._evaluators, self._state = evaluators, state

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The names of the metrics that are known before an evaluation, as `task|metric`."""
        return tuple(
            f"{name}|{metric}"
            for name, part in self._evaluators.items()
            for metric in part.evaluator.metric_names
        )

    @property
    def gathers(self) -> bool:
        """Whether a task adds metrics that are not known in advance."""
        return any(part.evaluator.gathers for part in self._evaluators.values())

    def evaluate(self, num_steps: tf.Tensor) -> dict[str, Any]:
        """Evaluates all tasks and returns their results by task name.

        `num_steps` (int32 scalar, -1 for all batches) applies to tasks without a number of their
        own.
        """
        ema = self._state.ema
        with ema.applied_scope() if ema is not None else contextlib.nullcontext():
            return {
                name: part.evaluator.evaluate(
                    num_steps if not part.steps else tf.constant(part.steps)
                )
                for name, part in self._evaluators.items()
            }
