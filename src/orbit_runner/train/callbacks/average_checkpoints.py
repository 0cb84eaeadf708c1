"""Checkpoints of the averaged weights, as Model Garden saves them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from orbit_runner.checkpoint.directory import CheckpointFolder
from orbit_runner.checkpoint.manager import Circumstances, record_of
from orbit_runner.checkpoint.writer import CheckpointWriter
from orbit_runner.distribute.process_group import Workers
from orbit_runner.state.train_state import TrainState
from orbit_runner.train.callbacks.base import Callback, Logs

if TYPE_CHECKING:
    from orbit_runner.train.run import Run

AVERAGES = "ema_checkpoints"


class AverageCheckpoints(Callback):
    """Saves the averaged weights after each evaluation, as Model Garden does."""

    def __init__(
        self,
        model_dir: Path,
        state: TrainState,
        circumstances: Circumstances,
        *,
        keep: int | None,
        workers: Workers | None = None,
    ) -> None:
        """Opens the folder.

        Args:
            model_dir: The folder of the run.
            state: What is saved; an average is kept in it.
            circumstances: Config, strategy and numerics; noted in each checkpoint.
            keep: How many stay; None: all.
            workers: The workers that train together, of which the chief alone writes; None for one.
        """
        folder = CheckpointFolder(model_dir / AVERAGES, name="average_weights", keep=keep)
        self._writer = CheckpointWriter(state.checkpoint(), folder, workers=workers)
        self._state, self._circumstances = state, circumstances

    def on_evaluate(self, run: Run, logs: Logs) -> None:
        """Saves them."""
        assert self._state.ema is not None
        with self._state.ema.applied_scope():
            self._writer.write(record_of(self._state, self._circumstances))
