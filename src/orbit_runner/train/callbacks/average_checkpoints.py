"""Checkpoints of the averaged weights, as Model Garden saves them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from orbit_runner.checkpoint.directory import CheckpointFolder
from orbit_runner.checkpoint.manager import RunConditions, record_of
from orbit_runner.checkpoint.writer import CheckpointWriter
from orbit_runner.distribute.process_group import Workers
from orbit_runner.state.train_state import TrainState
from orbit_runner.train.callbacks.base import Callback, Logs

if TYPE_CHECKING:
    from orbit_runner.train.run import Run

AVERAGES = "ema_checkpoints"


class AverageCheckpoints(Callback):
    """Saves a checkpoint of the averaged weights after each evaluation."""

    def __init__(
        self,
        model_dir: Path,
        state: TrainState,
        conditions: RunConditions,
        *,
        keep: int | None,  # the number of checkpoints to keep; None: all
        workers: Workers | None = None,  # None: this process only
    ) -> None:
        folder = CheckpointFolder(model_dir / AVERAGES, name="average_weights", keep=keep)
        self._writer = CheckpointWriter(state.checkpoint(), folder, workers=workers)
        self._state, self._conditions = state, conditions

    def on_evaluate(self, run: Run, logs: Logs) -> None:
        """Saves the averaged weights."""
        assert self._state.ema is not None
        with self._state.ema.applied_scope():
            self._writer.write(record_of(self._state, self._conditions))
