"""The progress of a sweep on standard error: a line for each trial that ends."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from orbit_runner.errors import format_count
from orbit_runner.reporting.progress.lines import make_progress
from orbit_runner.sweep.results import SweepResults, TrialResult
from orbit_runner.sweep.view.ranking import (
    objective_text,
    settings_text,
    status_counts,
)
from orbit_runner.sweep.view.setting_axis import setting_names


class TrialProgress:
    """Shows trials that have ended, how many there are, and which run.

    Args:
        kind: A value of `--progress`.
        interval: The seconds between lines that report that the sweep is still running.
        place: The directory of the sweep, which a live display shows.
    """

    def __init__(self, kind: str = "auto", *, interval: float = 10.0, place: str = "") -> None:
        self._progress = make_progress(kind, interval=interval, title="sweep", place=place)
        self._ended: set[int] | None = None

    @contextlib.contextmanager
    def shown_scope(self) -> Iterator[None]:
        """Shows progress and log messages within a `with` block."""
        with self._progress.shown_scope():
            yield

    def update(self, results: SweepResults, running: Mapping[int, str]) -> None:
        """Shows the trials that have ended since the last call.

        `running` is what each trial that is being trained does, by its number.
        """
        ended = {trial.number: trial for trial in results.trials if trial.status != "pending"}
        trials = len(results.trials)
        if self._ended is None:
            self._ended = set(ended)
            count = format_count(trials, "trial")
            self._progress.phase(f"training {count} of {results.experiment}")
            if ended:
                self._progress.note(f"already ended: {status_counts(results)}")
        for number in sorted(set(ended) - self._ended):
            self._ended.add(number)
            self._report_trial(results, ended[number], len(self._ended))
        active = "; ".join(f"trial {number}: {text}" for number, text in running.items())
        fraction = len(ended) / trials if trials else 0.0
        self._progress.detail(f"{len(ended)} of {trials} ended; {active}".rstrip("; "), fraction)

    def _report_trial(self, results: SweepResults, trial: TrialResult, ended: int) -> None:
        best = results.best
        is_best = best is not None and best.number == trial.number
        values = settings_text(trial.settings, setting_names(results))
        self._progress.note(
            f"trial {trial.number} {trial.status} at step {trial.step:,}: {results.objective_name} "
            f"{objective_text(trial)}{', best so far' if is_best else ''}  {values}  "
            f"({ended} of {len(results.trials)})"
        )
