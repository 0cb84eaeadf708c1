"""Writes `sweep.csv` and `sweep.html` of a sweep."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import time
from collections.abc import Iterator
from pathlib import Path

from orbit_runner.sweep.results import SweepResults
from orbit_runner.sweep.view.page import sweep_page
from orbit_runner.sweep.view.setting_axis import setting_names
from orbit_runner.utils.files import write_atomically

CSV_FILE = "sweep.csv"
PAGE_FILE = "sweep.html"
_INTERVAL_SECONDS = 10.0


def write_sweep_files(directory: Path, results: SweepResults) -> None:
    """Writes `sweep.csv` and `sweep.html` to the directory of a sweep, each atomically.

    Args:
        directory: The directory of the sweep.
        results: Its results.

    Raises:
        OSError: A file cannot be written.
    """
    write_atomically(directory / CSV_FILE, csv_text(results))
    write_atomically(directory / PAGE_FILE, sweep_page(directory, results))


class SweepFiles:
    """Writes the files again when a trial has ended, but at most every ten seconds."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._due = 0.0
        self._ended = 0

    def update(self, results: SweepResults) -> None:
        """Writes the files if they are due. A file that cannot be written does not end a sweep."""
        ended = sum(trial.status != "pending" for trial in results.trials)
        if ended == self._ended or time.monotonic() < self._due:
            return
        with contextlib.suppress(OSError):
            write_sweep_files(self._directory, results)
        self._ended = ended
        self._due = time.monotonic() + _INTERVAL_SECONDS


def csv_text(results: SweepResults) -> str:
    """Returns the text of `sweep.csv`: a row for each seed of each trial."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(_rows(results))
    return text.getvalue()


def _rows(results: SweepResults) -> Iterator[list[object]]:
    paths = list(setting_names(results))
    yield ["trial", "seed", *paths, "status", "step", "objective", "weights"]
    for trial in results.trials:
        values = [_cell(trial.settings[path]) if path in trial.settings else "" for path in paths]
        for run in trial.runs:
            objective = "" if run.objective is None else run.objective
            yield [trial.number, run.seed, *values, run.status, run.step, objective, run.weights]


def _cell(value: object) -> str | float:
    """Returns a value as CSV: lists, true, false and null as JSON; numbers and texts as they are.

    A text in quotation marks, as JSON has it, is one that would be read as another type.
    """
    if isinstance(value, str):
        return json.dumps(value) if _is_json(value) else value
    return (
        value
        if isinstance(value, (int, float)) and not isinstance(value, bool)
        else json.dumps(value)
    )


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
