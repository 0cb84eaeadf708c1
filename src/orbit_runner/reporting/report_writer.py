"""Writes `report.html` of a run, and keeps it up to date while the run is in progress.

What the report shows besides the records is collected in less than 1 % of the time of the run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orbit_runner.errors import first_line
from orbit_runner.reporting.report import make_report
from orbit_runner.reporting.report_data import write_data
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.train.callbacks.base import Callback, Logs
from orbit_runner.utils.files import write_atomically
from orbit_runner.utils.log import note, phase

if TYPE_CHECKING:
    from orbit_runner.train.callbacks.base import RunView
    from orbit_runner.train.run import Run

# An update waits for at least this many times as long as the previous one took.
_PAUSE_FACTOR = 200
# Examples of an evaluation take at most this part of the time of the run so far, and of the time
# since they were collected before.
_PART = 1 / 200
# The limits of that time, in seconds.
_LEAST, _MOST = 0.5, 20.0


def write_report(path: Path, target: Path) -> None:
    """Writes the report of a run atomically. Raises OSError if the file cannot be written."""
    write_atomically(target, make_report(path))


class ReportWriter(Callback):
    """Updates the report at most every `interval` seconds, in well under 1 % of the time.

    Also writes the files of `report_data/`. If `interval` is 0, writes nothing. It never ends a
    run: the first failure is reported as a warning, and after one to collect data, nothing more is
    collected.
    """

    def __init__(self, path: Path, interval: float) -> None:
        self._path = path
        self._interval = interval
        self._first_step = 0
        self._began = time.monotonic()
        self._due = self._began + interval
        self._examples_due = self._began + _LEAST / _PART
        self._has_inputs = False
        self._cannot_collect = self._cannot_write = False

    def on_run_begin(self, run: RunView) -> None:
        """Remembers when and at which step the run began."""
        self._first_step = run.step
        self._began = time.monotonic()
        self._examples_due = self._began + _LEAST / _PART

    def on_loop_end(self, run: RunView, logs: Logs) -> None:
        """Updates the report if it is due."""
        if self._interval and time.monotonic() >= self._due:
            self.on_train_end(run)
            self.write()
            phase("training", minor=True)

    def on_evaluate(self, run: Any, logs: Logs) -> None:
        """Collects examples at the last evaluation, and at others if enough time has passed."""
        start = time.monotonic()
        is_last = run.step >= run.train_steps or run.stops.reason
        if is_last or start >= self._examples_due:
            self._collect(self._evaluation, run)
            end = time.monotonic()
            self._examples_due = end + (end - start) / _PART
        self.on_loop_end(run, logs)

    def on_train_end(self, run: RunView) -> None:
        """Collects a training batch and the layers of the model, once."""
        if not self._has_inputs:
            self._has_inputs = True
            self._collect(self._inputs, run)

    def write(self) -> None:
        """Writes the report now."""
        if not self._interval:
            return
        start = time.monotonic()
        report = RunDirectory(self._path).report
        try:
            write_report(self._path, report)
        except Exception as error:
            if not self._cannot_write:
                note(f"warning: {report} cannot be written: {first_line(error)}")
            self._cannot_write = True
        end = time.monotonic()
        self._due = end + max(self._interval, _PAUSE_FACTOR * (end - start))

    def _evaluation(self, run: Run) -> None:
        from orbit_runner.reporting.report_collection import collect_evaluation

        seconds = (time.monotonic() - self._began) * _PART
        evaluation = collect_evaluation(run, min(max(seconds, _LEAST), _MOST))
        if evaluation is not None:
            write_data(self._path, evaluation)

    def _inputs(self, run: Run) -> None:
        from orbit_runner.reporting.report_collection import collect_inputs, collect_model

        inputs, features = collect_inputs(run, self._first_step)
        write_data(self._path, inputs)
        model = collect_model(run, features)
        if model is not None:
            write_data(self._path, model)

    def _collect(self, collect: Callable[[Run], None], run: Any) -> None:
        # If the run directory was removed, writing would create it again.
        if not self._interval or self._cannot_collect or not self._path.is_dir():
            return
        phase("collecting data for the report", minor=True)
        try:
            collect(run)
        except Exception as error:
            self._cannot_collect = True
            note(f"warning: the report has no examples of this run: {first_line(error)}")
