"""Detects that training diverged: by its loss, and by weights that are not finite."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from orbit_runner.config.schema.trainer import TrainerConfig
from orbit_runner.errors import Diverged
from orbit_runner.state.train_state import TrainState


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
