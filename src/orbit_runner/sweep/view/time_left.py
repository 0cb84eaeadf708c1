"""Estimates how long a sweep will still take."""

from __future__ import annotations

import time
from collections.abc import Callable

from orbit_runner.sweep.results import SweepResults
from orbit_runner.sweep.view.trial_curves import rungs


class TimeLeft:
    """Estimates the time left from the steps that were trained since the first results."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.started: float | None = None
        self._first = 0

    def update(self, results: SweepResults) -> None:
        """Stores the steps at the first call."""
        if self.started is None:
            self.started = self._clock()
            self._first = _trained_steps(results)

    def elapsed_seconds(self) -> float:
        """Returns the seconds since the first results."""
        return 0.0 if self.started is None else self._clock() - self.started

    def remaining_seconds(self, results: SweepResults) -> float | None:
        """Returns the estimated seconds left; None before any step was trained."""
        trained = _trained_steps(results) - self._first
        if trained <= 0:
            return None
        return _remaining_steps(results) * self.elapsed_seconds() / trained


def _trained_steps(results: SweepResults) -> int:
    return sum(run.step for trial in results.trials for run in trial.runs)


def _remaining_steps(results: SweepResults) -> float:
    """Returns the expected number of steps of trials that have not ended."""
    expected = expected_steps(results)
    pending = [trial for trial in results.trials if trial.status == "pending"]
    steps = [run.step for trial in pending for run in trial.runs if run.status == "pending"]
    missing = sum(max(0, len(results.seeds) - len(trial.runs)) for trial in pending)
    return sum(max(0.0, expected - step) for step in steps) + missing * expected


def expected_steps(results: SweepResults) -> float:
    """Returns the mean number of steps of a run, which halving reduces."""
    halving = results.search.get("halving")
    keep = halving.get("keep") if isinstance(halving, dict) else None
    if not isinstance(keep, (int, float)):
        return float(results.train_steps)
    total = 0.0
    share = 1.0
    before = 0
    for rung in [*rungs(results), results.train_steps]:
        total += share * (rung - before)
        share = share * keep
        before = rung
    return total
