"""Finds the first step that is not finite, by training again from the last checkpoint.

A step is a function of the state before it, the seed and its number, so it gives the same values
each time. Records, evaluations and callbacks are left out while steps are trained again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from orbit_runner.checkpoint.finite_check import NonFiniteTensor, describe_non_finite
from orbit_runner.train.nonfinite.finite_check import FiniteCheck
from orbit_runner.train.nonfinite.restart import StateCopy, restart, return_to_checkpoint
from orbit_runner.train.trainer import Trainer
from orbit_runner.utils.log import phase

if TYPE_CHECKING:
    from orbit_runner.train.run import Run


@dataclasses.dataclass(frozen=True)
class BadStep:
    """A step after which the loss, a weight, a slot or an average is not finite."""

    step: int
    loss: float
    tensors: Sequence[NonFiniteTensor] = ()

    def __str__(self) -> str:
        loss = "" if math.isfinite(self.loss) else f"the loss is {self.loss:g}"
        found = "; ".join(filter(None, (loss, describe_non_finite(self.tensors))))
        return f"step {self.step} is not finite: {found}"


def find_first_bad_step(run: Run, bad: int) -> BadStep | None:
    """Returns the first step that is not finite; `bad` is a step at which values are not finite.

    Returns None if it cannot be found, because there is nothing to start from, or because the steps
    up to `bad` are finite now. Raises Interrupted if a worker received a signal.
    """
    assert run.trainer is not None
    check = run.trainer.finite_check
    if check is None:
        return None
    with _paused_checks_scope(run.trainer):
        return _Search(run, run.trainer, check).find(check.good_step, bad)


@contextlib.contextmanager
def _paused_checks_scope(trainer: Trainer) -> Iterator[None]:
    check, trainer.finite_check = trainer.finite_check, None
    try:
        yield
    finally:
        trainer.finite_check = check


class _Search:
    def __init__(self, run: Run, trainer: Trainer, check: FiniteCheck) -> None:
        self._run, self._trainer, self._check = run, trainer, check
        self._loss = 0.0

    def find(self, good: int, bad: int) -> BadStep | None:
        """Returns the first step after `good`, up to `bad`, that is not finite."""
        if not return_to_checkpoint(self._run) or self._run.step >= bad:
            return None
        begin, good = self._run.step, max(good, self._run.step)
        if good > begin:
            phase(f"training again from step {begin} to {good}")
        if not self._train(good):
            if good == begin:
                return None
            # Several workers know their losses only at the end of a loop.
            good, bad = begin, good
            return_to_checkpoint(self._run)
        start = StateCopy(self._run.state)
        # Long pieces first, then single steps in the piece that is not finite.
        for stride in (math.isqrt(bad - good), 1):
            phase(f"searching steps {good + 1} to {bad} for the first that is not finite")
            if self._run.step != good:
                start.restore(self._run.state)
                self._trainer.seek()
                if not self._train(good):
                    return None
            while self._train(min(bad, good + stride)):
                good = self._run.step
                if good == bad:
                    return None
            bad = self._run.step
        return BadStep(bad, self._loss, self._check.non_finite())

    def _train(self, step: int) -> bool:
        """Trains to a step. Returns whether all losses, and the values at that step, are finite."""
        losses = []
        while self._run.step < step:
            # Weights of the search are not saved: they lack what evaluations change.
            self._run.stops.exit_if_requested(self._run.step, self._save_checkpoint)
            logs = self._trainer.train(tf.constant(step - self._run.step, tf.int32))
            records = [logs, *(record for _, record in self._trainer.earlier_records)]
            losses += [float(one["training_loss"]) for one in records]
        self._loss = next((loss for loss in losses if not math.isfinite(loss)), 0.0)
        counts = self._check.counts_losses and not math.isfinite(self._loss)
        return not counts and self._check.is_finite()

    def _save_checkpoint(self) -> None:
        restart(self._run)
        self._run.save()
