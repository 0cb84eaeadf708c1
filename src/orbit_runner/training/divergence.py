"""Detects that training diverged: by its loss, and by weights that are not finite."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from orbit_runner.config.trainer import TrainerConfig
from orbit_runner.errors import RunnerError
from orbit_runner.training.finite_check import NonFiniteTensor, describe_non_finite
from orbit_runner.training.state import TrainState

_ADVICE = (
    "lower the learning rate, check the data, or set trainer.recovery_max_trials to return to the "
    "last checkpoint"
)


class Diverged(RunnerError, RuntimeError):
    """Training diverged; a RuntimeError, as Model Garden's."""

    exit_code = 3

    def __init__(self, reason: str) -> None:
        """Makes the error.

        Args:
            reason: What was found, and at which step.
        """
        super().__init__(f"training diverged: {reason}\n{_ADVICE}")
        self.reason = reason


def non_finite_error(step: int, found: Sequence[NonFiniteTensor]) -> Diverged:
    """Returns the error for weights, slots or averages that are not finite.

    Args:
        step: The global step.
        found: The tensors.
    """
    return Diverged(
        f"the weights of step {step} are not finite, and no checkpoint was saved "
        f"({describe_non_finite(found)})"
    )


class DivergenceGuard:
    """Raises an error as soon as the training loss diverged."""

    def __init__(self, trainer: TrainerConfig, state: TrainState) -> None:
        """Makes the guard ready.

        Args:
            trainer: The settings.
            state: Holds the step and the count of recoveries.
        """
        self._trainer, self._state = trainer, state

    def __call__(self, logs: Mapping[str, Any]) -> None:
        """Checks the loss after a loop.

        Args:
            logs: The output of the loop.

        Raises:
            Diverged: The loss is NaN, infinite, or above its bound.
        """
        self._check(int(self._state.global_step.numpy()), logs)

    def check_all(self, records: Sequence[tuple[int, Mapping[str, Any]]]) -> None:
        """Checks the loss of records that ended within a loop.

        Args:
            records: The step of each, and name to value.

        Raises:
            Diverged: A loss is NaN, infinite, or above its bound.
        """
        for step, logs in records:
            self._check(step, logs)

    def _check(self, step: int, logs: Mapping[str, Any]) -> None:
        loss = float(logs["training_loss"])
        bound = self._trainer.loss_upper_bound
        above = loss > bound and step >= self._trainer.recovery_begin_steps
        if math.isfinite(loss) and not above:
            return
        trials = int(self._state.recoveries.numpy())
        raise Diverged(
            f"the loss is {loss:g} at step {step}, allowed: at most {bound:g}"
            + (f"; returned to a checkpoint {trials} times before" if trials else "")
        )
