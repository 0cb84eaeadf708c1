"""Finds the step at which a run diverged, by training again from the checkpoint before it.

A step is a function of the state before it, the seed and its number, so it gives the same values
each time. Records, evaluations and callbacks are left out.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from orbit_runner.checkpoint.fingerprint import (
    NonFiniteTensor,
    describe_non_finite,
    non_finite_variables,
)
from orbit_runner.run_directory.metric_records import Divergence
from orbit_runner.state.train_state import TrainState
from orbit_runner.step.examine import KeptState
from orbit_runner.train.loop import train_in_loops
from orbit_runner.utils.log import phase

if TYPE_CHECKING:
    from orbit_runner.train.run import Run


@dataclasses.dataclass(frozen=True)
class BadStep:
    """The first step whose loss is above its bound, or after which something is not finite."""

    step: int  # 0 if the initial weights are not finite
    loss: float
    tensors: Sequence[NonFiniteTensor]  # weights, slots and averages that are not finite after it

    def __str__(self) -> str:
        loss = f"the loss is {self.loss:g}" if self.step else ""
        return "; ".join(filter(None, (loss, describe_non_finite(self.tensors))))


def find_bad_step(run: Run, divergence: Divergence) -> BadStep | None:
    """Returns the first bad step, and leaves the run before it; None if no step is bad.

    The run has the state of a checkpoint before the step, or its initial state.
    """
    assert run.trainer is not None
    run.state.recoveries.assign(divergence.recoveries)
    run.trainer.rewind()
    with run.strategy.scope():
        return _find(run, divergence)


def _find(run: Run, divergence: Divergence) -> BadStep | None:
    if tensors := _non_finite(run.state):
        return BadStep(run.step, math.nan, tensors)
    last = divergence.step
    trainer = run.config.trainer
    if divergence.first_above is None:
        phase(f"searching steps {run.step + 1} to {last} for the first that is not finite")

        def is_bad(loss: float) -> bool:
            counts = trainer.checks_divergence and not math.isfinite(loss)
            return counts or bool(_non_finite(run.state))

        # Long pieces first, then single steps in the piece that is not finite.
        piece = _find_piece(run, last, math.isqrt(last - run.step), is_bad)
        return piece and _find_piece(run, piece.step, 1, is_bad)
    _train(run, divergence.first_above - 1)
    bound = trainer.loss_upper_bound
    phase(f"searching steps {run.step + 1} to {last} for the first loss above {bound:g}")
    return _find_piece(run, last, 1, lambda loss: not loss <= bound)


def _find_piece(
    run: Run, last: int, length: int, is_bad: Callable[[float], bool]
) -> BadStep | None:
    """Trains up to `last` in pieces of `length` steps, and returns to the start of the first bad.

    `is_bad` gets the mean loss of the piece. Returns the end of that piece; None if none is bad.
    """
    assert run.trainer is not None
    while run.step < last:
        start = KeptState(run)
        loss = _train(run, min(last, run.step + length))
        if is_bad(loss):
            bad = BadStep(run.step, loss, _non_finite(run.state))
            start.restore()
            run.trainer.seek()
            return bad
    return None


def _train(run: Run, step: int) -> float:
    """Trains to a step. Returns the mean loss, or one that is not finite if there is any."""
    assert run.trainer is not None
    run.trainer.metrics.reset()
    losses = [0.0]
    for logs in train_in_loops(run, step):
        records = [*(record for _, record in run.trainer.earlier_records), logs]
        losses += [float(record["training_loss"]) for record in records]
    return next((loss for loss in losses if not math.isfinite(loss)), losses[-1])


def _non_finite(state: TrainState) -> list[NonFiniteTensor]:
    """Returns the variables that are not finite: weights first, then slots and averages."""
    averages = state.ema.averages if state.ema is not None else []
    variables = (*state.model.variables, *state.optimizer_variables(), *averages)
    not_trained = {id(variable) for variable in state.hyperparameters()}
    return [
        tensor
        for tensor in non_finite_variables(v for v in variables if id(v) not in not_trained)
        if tensor.name not in state.non_finite
    ]
