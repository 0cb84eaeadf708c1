"""Restores the state of a run after a step that must not change it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

if TYPE_CHECKING:
    from orbit_runner.train.run import Run


class KeptState:
    """Copies of all variables of a run that trains: of its state, its trainer and its task."""

    def __init__(self, run: Run) -> None:
        assert run.trainer is not None
        state, root = run.state, run.state.checkpoint()  # A view does not keep its root.
        tracked = tf.train.TrackableView(root).descendants()
        found = [one for one in tracked if isinstance(one, tf.Variable)]
        # A checkpoint finds slots and averages by their weights only.
        averages = () if state.ema is None else state.ema.averages
        found += [*state.optimizer_variables(), *averages, *run.trainer.variables]
        variables = {id(one): one for one in found}
        self._strategy = run.strategy
        # Each replica may have a value of its own.
        self._copies = {
            key: [(part, np.array(part.numpy())) for part in self._parts(variable)]
            for key, variable in variables.items()
        }

    def value(self, variable: Any) -> np.ndarray:
        """Returns the value that a variable had, on the first replica."""
        return self._copies[id(variable)][0][1]

    def restore(self) -> None:
        """Assigns the copies to the variables."""
        for parts in self._copies.values():
            for part, value in parts:
                part.assign(value)

    def _parts(self, variable: Any) -> list[Any]:
        return list(self._strategy.experimental_local_results(variable))


@contextlib.contextmanager
def kept_state_scope(run: Run) -> Iterator[KeptState]:
    """Restores all variables of a run that trains at the end of a `with` block."""
    kept = KeptState(run)
    try:
        yield kept
    finally:
        kept.restore()
