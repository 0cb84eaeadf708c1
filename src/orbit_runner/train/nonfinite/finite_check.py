"""Checks between the pieces of a loop whether weights, slots, averages and losses are finite."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from orbit_runner.checkpoint.finite_check import (
    NonFiniteTensor,
    describe_non_finite,
    non_finite_variables,
)
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.distribute.process_group import Workers, is_asynchronous
from orbit_runner.errors import Diverged
from orbit_runner.state.train_state import TrainState
from orbit_runner.train.loops.stage import Stage
from orbit_runner.utils.variables import variable_name

if TYPE_CHECKING:
    from orbit_runner.train.callbacks.base import Logs


_SHARE = 0.005
_SECONDS = 1.0


class FiniteCheck(Stage):
    """Detects soon afterwards that a step was not finite, without changing the graph of a step.

    A gradient that is NaN makes weights and slots NaN, and they remain so. A loss that is NaN
    remains in the mean until the next record. It is therefore enough to check them now and then.
    """

    def __init__(
        self,
        state: TrainState,
        workers: Workers,
        # Returns the mean loss since the last record; None if it cannot be read between loops.
        loss: Callable[[], tf.Tensor] | None = None,
        *,
        counts_losses: bool = True,  # whether a loss that is not finite counts
        # Returns the records that ended within the loop, each with its step.
        records: Callable[[], Sequence[tuple[int, Logs]]] = lambda: (),
        seconds: float = _SECONDS,  # between two checks, at least
        share: float = _SHARE,  # of the time that checks may take
    ) -> None:
        self._variables = [
            variable
            for variable in _float_variables(state)
            if variable_name(variable) not in state.non_finite
        ]
        self._workers = workers
        self._loss = loss if counts_losses else None
        self.counts_losses = counts_losses
        self._records = records
        self._last = time.monotonic()
        self._seconds = seconds
        self._share = share
        self._pause = seconds
        self._is_paused = False
        self.good_step = 0  # the last step at which a check found only finite values

    @contextlib.contextmanager
    def paused_scope(self) -> Iterator[None]:
        """Checks no piece that ends in a `with` block."""
        self._is_paused = True
        try:
            yield
        finally:
            self._is_paused = False

    def end_piece(self, step: int) -> None:
        """Raises `Diverged` if a value is not finite. Most calls only read a clock."""
        if self._is_paused:
            return
        if self.counts_losses:
            for end, logs in self._records():
                if not math.isfinite(logs["training_loss"]):
                    raise _error(f"the loss is {logs['training_loss']:g} at step {end}")
        # Workers have different clocks, but must raise the error together.
        if not self._workers.broadcast_from_chief(time.monotonic() - self._last > self._pause):
            return
        start = time.monotonic()
        if not self.is_finite():
            what = describe_non_finite(self.non_finite()) or "the loss is not finite"
            raise _error(f"{what} at step {step}")
        self.good_step = step
        self._last = time.monotonic()
        self._pause = max(self._seconds, (self._last - start) / self._share)

    def is_finite(self) -> bool:
        """Returns whether all values are finite now."""
        if math.isfinite(self._sum_of_squares().numpy()):
            return True
        # The sum may also overflow.
        return not self.non_finite() and (self._loss is None or math.isfinite(self._loss().numpy()))

    def non_finite(self) -> list[NonFiniteTensor]:
        """Returns the variables that are not finite: weights first, then slots and averages."""
        return non_finite_variables(self._variables)

    def _sum_of_squares(self) -> tf.Tensor:
        # One op for each variable, which needs no memory of its size. Run eagerly, because tracing
        # them takes longer than hundreds of such checks.
        squares = [tf.cast(tf.nn.l2_loss(variable), tf.float32) for variable in self._variables]
        return tf.add_n([*squares, *([] if self._loss is None else [self._loss()])])


def _float_variables(state: TrainState) -> Iterator[tf.Variable]:
    hyperparameters = {id(variable) for variable in state.hyperparameters()}
    averages = state.ema.averages if state.ema is not None else []
    for variable in (*state.model.variables, *state.optimizer_variables(), *averages):
        if variable.dtype.is_floating and id(variable) not in hyperparameters:
            yield variable


def _error(reason: str) -> Diverged:
    return Diverged(reason, non_finite=True)


def check_initial_weights(
    config: ExperimentConfig, state: TrainState, strategy: tf.distribute.Strategy, source: str
) -> None:
    """Raises `Diverged` if a trained weight is not finite before the first step.

    `source` is what initial weights were loaded from; "" if nothing was.
    """
    if is_asynchronous(strategy) or not config.trainer.checks_divergence:
        return
    variables = [
        variable for variable in state.model.trainable_variables if variable.dtype.is_floating
    ]
    # The sum tells without a copy of each weight; it may also overflow.
    squares = [tf.cast(tf.nn.l2_loss(variable), tf.float32) for variable in variables]
    is_finite = not squares or math.isfinite(tf.add_n(squares).numpy())
    non_finite = [] if is_finite else non_finite_variables(variables)
    if not non_finite:
        return
    cause = (
        f"check the file that initial weights were loaded from, {source}"
        if source
        else "check the initializer of this layer, and the code that creates it"
    )
    raise Diverged(
        f"the initial weights are not finite, so no step was trained\n"
        f"  {describe_non_finite(non_finite)}",
        non_finite=True,
        step=0,
        advice=cause,
    )
