"""Decides when to collect what the report shows, so that it takes less than 1 % of a run."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from orbit_runner.errors import first_line
from orbit_runner.reporting.report_data.files import write_data
from orbit_runner.train.callbacks.base import Callback, Logs
from orbit_runner.utils.log import note, phase

# Examples of an evaluation take at most this part of the time of the run so far, and of the time
# since they were collected before.
_PART = 1 / 200
# The limits of that time, in seconds.
_LEAST, _MOST = 0.5, 20.0


class ReportCollector(Callback):
    """Writes the files of `report_data/`.

    It never ends a run: the first failure is reported as a warning, and then nothing is collected.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._first_step, self._began, self._due = 0, 0.0, 0.0
        self._has_inputs, self._failed = False, False

    def on_run_begin(self, run: Any) -> None:
        """Remembers when and at which step the run began."""
        self._first_step, self._began = run.step, time.monotonic()
        self._due = self._began + _LEAST / _PART

    def on_evaluate(self, run: Any, logs: Logs) -> None:
        """Collects examples at the last evaluation, and at others if enough time has passed."""
        if not hasattr(run, "adapter"):  # A custom trainer of Model Garden has none.
            return
        start = time.monotonic()
        is_last = run.step >= run.train_steps or run.stops.reason
        if is_last or start >= self._due:
            self._collect(self._evaluation, run)
            end = time.monotonic()
            self._due = end + (end - start) / _PART

    def collect_inputs(self, run: Any) -> None:
        """Collects a training batch and the layers of the model, once."""
        if hasattr(run, "adapter") and not self._has_inputs:
            self._has_inputs = True
            self._collect(self._inputs, run)

    def _evaluation(self, run: Any) -> None:
        from orbit_runner.reporting.report_data.collection import collect_evaluation

        seconds = (time.monotonic() - self._began) * _PART
        found = collect_evaluation(run, min(max(seconds, _LEAST), _MOST))
        if found is not None:
            write_data(self._path, found)

    def _inputs(self, run: Any) -> None:
        from orbit_runner.reporting.report_data.collection import collect_inputs, collect_model

        inputs, features = collect_inputs(run, self._first_step)
        write_data(self._path, inputs)
        model = collect_model(run, features)
        if model is not None:
            write_data(self._path, model)

    def _collect(self, collect: Callable[[Any], None], run: Any) -> None:
        # If the run directory was removed, writing would create it again.
        if self._failed or not self._path.is_dir():
            return
        phase("collecting data for the report", minor=True)
        try:
            collect(run)
        except Exception as error:
            self._failed = True
            note(f"warning: the report has no examples of this run: {first_line(error)}")
