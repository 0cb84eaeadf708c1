"""Evaluating one model on several tasks."""

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
class Part:
    """One of the tasks.

    Attributes:
        evaluator: Evaluates it.
        steps: Its batches; None for as many as others have.
    """

    evaluator: Evaluator
    steps: int | None


class MultiEvaluator(orbit.AbstractEvaluator):
    """Evaluates task after task; results are nested by their names."""

    def __init__(self, parts: Mapping[str, Part], state: TrainState) -> None:
        """Makes an evaluator.

        Args:
            parts: The tasks by name; their evaluators swap no weights.
            state: What is evaluated, on the averaged weights where an average is kept.
        """
        self._parts, self._state = parts, state

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The metrics, as far as they are known before an evaluation: `task|metric`."""
        return tuple(
            f"{name}|{metric}"
            for name, part in self._parts.items()
            for metric in part.evaluator.metric_names
        )

    @property
    def gathers(self) -> bool:
        """Whether a task adds metrics that are not known before."""
        return any(part.evaluator.gathers for part in self._parts.values())

    def evaluate(self, num_steps: tf.Tensor) -> dict[str, Any]:
        """Evaluates all tasks.

        Args:
            num_steps: int32 scalar, of tasks that say no number of their own; -1 for all there are.

        Returns:
            For each task what `Evaluator.evaluate` returns.
        """
        ema = self._state.ema
        with ema.applied_scope() if ema is not None else contextlib.nullcontext():
            return {
                name: part.evaluator.evaluate(
                    num_steps if not part.steps else tf.constant(part.steps)
                )
                for name, part in self._parts.items()
            }
