"""Callbacks around the files of a run: records, errors of failed saves, a removed directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from orbit_runner.run_directory.run_lock import RunLock
from orbit_runner.train.callbacks.base import Callback, Logs
from orbit_runner.train.callbacks.summaries import Summaries

if TYPE_CHECKING:
    from orbit_runner.train.run import Run


class DirectoryCheck(Callback):
    """Raises `RunDirectoryRemoved` soon after the run directory was removed.

    Otherwise, the next save would create it again, and the run would end as if nothing was lost.
    """

    def __init__(self, model_dir: Path) -> None:
        self._lock = RunLock(model_dir)

    def on_loop_end(self, run: Run, logs: Logs) -> None:
        """Checks the directory."""
        self._check()

    def on_evaluate(self, run: Run, logs: Logs) -> None:
        """Checks the directory."""
        self._check()

    def _check(self) -> None:
        if self._lock.is_removed():
            raise self._lock.removal_error()


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
