"""Detects diverged training by its loss."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from orbit_runner.config.schema.trainer import TrainerConfig
from orbit_runner.errors import Diverged
from orbit_runner.train.callbacks.base import Callback, Logs

if TYPE_CHECKING:
    from orbit_runner.train.run import Run


class DivergenceGuard(Callback):
    """Raises `Diverged` if the training loss is NaN, infinite or above its bound."""

    def __init__(self, trainer: TrainerConfig) -> None:
        self._trainer = trainer

    def on_loop_end(self, run: Run, logs: Logs) -> None:
        """Checks the loss of the loop, and of the records that ended within it."""
        assert run.trainer is not None
        for step, earlier in run.trainer.earlier_records:
            self._check(run, step, earlier)
        self._check(run, run.step, logs)

    def _check(self, run: Run, step: int, logs: Logs) -> None:
        loss = float(logs["training_loss"])
        bound = self._trainer.loss_upper_bound
        above = loss > bound and step >= self._trainer.recovery_begin_steps
        if math.isfinite(loss) and not above:
            return
        trials = int(run.state.recoveries.numpy())
        raise Diverged(
            f"the loss is {loss:g} at step {step}, allowed: at most {bound:g}"
            + (f"; recoveries so far: {trials}" if trials else ""),
            non_finite=not math.isfinite(loss),
        )
