"""Returns to the last checkpoint within a process, as a run does that is started again."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from orbit_runner.distribute.sharded_variables import is_variable
from orbit_runner.errors import Diverged
from orbit_runner.state.train_state import TrainState
from orbit_runner.train.build_state import build_state_again
from orbit_runner.utils.files import cut_records

if TYPE_CHECKING:
    from orbit_runner.train.run import Run


class StateCopy:
    """A copy of all values of a state, in the memory of the host."""

    def __init__(self, state: TrainState) -> None:
        self._values = [np.array(one.numpy()) for one in _variables(state)]

    def restore(self, state: TrainState) -> None:
        """Assigns the values to a state of the same structure."""
        for variable, value in zip(_variables(state), self._values, strict=True):
            variable.assign(value)


def _variables(state: TrainState) -> list[Any]:
    # With averages, which a run saves as slots. The view does not keep the checkpoint alive.
    checkpoint = tf.train.Checkpoint(**state.items(ema_in_optimizer=False))
    found = [*tf.train.TrackableView(checkpoint).descendants()]
    # Slots of legacy optimizers are no attributes of the optimizer.
    inner = getattr(state.optimizer, "inner_optimizer", state.optimizer)
    unique = {id(one): one for one in (*found, *inner.variables()) if is_variable(one)}
    return list(unique.values())


def return_to_checkpoint(run: Run) -> bool:
    """Restores the last checkpoint, or the initial state if there is none.

    Returns False if there is none and the initial state cannot be computed again.
    """
    assert run.trainer is not None
    with contextlib.suppress(Diverged):
        run.checkpoints.sync()  # The save in progress may be of weights that are not finite.
    if run.checkpoints.restore_latest() is None:
        if run.config.is_official:
            return False  # Its models may draw weights that depend on the process.
        StateCopy(build_state_again(run.config, run.adapter, run.strategy)).restore(run.state)
        run.checkpoints.restore_or_initialize(run.task)
    run.trainer.seek()
    return True


def restart(run: Run) -> None:
    """Returns to the last checkpoint and removes the records of later steps.

    Training continues as if the run had been started again. Steps that were skipped remain so.
    """
    assert run.trainer is not None
    skipped = run.trainer.skipped.found
    return_to_checkpoint(run)
    run.stops.reason = ""
    run.restore_callbacks()
    run.trainer.skipped.found = skipped
    if run.trainer.finite_check is not None:
        run.trainer.finite_check.good_step = run.step
    if run.records is not None:
        for path in (run.directory.metrics, run.directory.fingerprints):
            cut_records(path, after=run.step)
        if run.best is not None:
            run.best.check_files()
