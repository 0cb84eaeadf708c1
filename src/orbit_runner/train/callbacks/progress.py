"""Callbacks that write the records of a loop, and raise the errors of failed saves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbit_runner.train.callbacks.base import Callback, Logs
from orbit_runner.train.callbacks.summaries import Summaries

if TYPE_CHECKING:
    from orbit_runner.train.run import Run


class RecordWriter(Callback):
    """Writes the records that ended within a loop; Orbit writes the one at its end."""

    def __init__(self, summaries: Summaries) -> None:
        self._summaries = summaries

    def on_loop_end(self, run: Run, logs: Logs) -> None:
        """Writes the records."""
        assert run.trainer is not None
        self._summaries.write(run.trainer.earlier_records)


class SaveErrors(Callback):
    """Raises the error of an asynchronous save at the end of the loop, not at the next save."""

    def on_loop_end(self, run: Run, logs: Logs) -> None:
        """Raises the error if there is one."""
        run.checkpoints.raise_failure()
