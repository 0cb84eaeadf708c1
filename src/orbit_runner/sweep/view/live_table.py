"""`LiveTable`: the trials of a sweep on standard error, while it runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from orbit_runner.errors import format_count
from orbit_runner.reporting.numbers import format_duration
from orbit_runner.reporting.progress.factory import can_draw, make_progress
from orbit_runner.reporting.progress.lines import JsonProgress
from orbit_runner.sweep.results import SweepResults, TrialResult
from orbit_runner.sweep.view.ranking import (
    objective_of,
    objective_text,
    repeats_text,
    settings_text,
    status_counts,
)
from orbit_runner.sweep.view.setting_axis import setting_names
from orbit_runner.sweep.view.time_left import TimeLeft

if TYPE_CHECKING:
    from orbit_runner.sweep.view.terminal_table import TerminalTable


class LiveTable:
    """Shows the trials of a sweep within a `with` block.

    On a terminal, a table that is updated; elsewhere, a line for each trial that ends.

    Args:
        kind: A value of `--progress`: `auto`, `bar`, `plain`, `json` or `none`.
        interval: The seconds between lines that report that the sweep is still running.
        place: The directory of the sweep. The first line of the table shows it.
    """

    def __init__(self, kind: str = "auto", *, interval: float = 10.0, place: str = "") -> None:
        self._display: TerminalTable | TrialLines
        if kind in ("auto", "bar") and can_draw(forced=kind == "bar"):
            from orbit_runner.sweep.view.terminal_table import TerminalTable

            self._display = TerminalTable(place)
        else:
            self._display = TrialLines(kind, interval)
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> LiveTable:
        self._stack.enter_context(self._display.shown_scope())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def update(self, results: SweepResults, running: Mapping[int, str]) -> None:
        """Shows new results.

        Args:
            results: The results so far.
            running: What each trial that is being trained does, such as `step 120 of 300`, by its
                number; "" shows `running`.
        """
        self._display.update(results, running)


class TrialLines:
    """Prints a line, or a JSON event, for each trial that ends."""

    def __init__(self, kind: str, interval: float) -> None:
        self._progress = make_progress(
            "plain" if kind in ("auto", "bar") else kind, interval=interval
        )
        self._ended: set[int] | None = None
        self._time_left = TimeLeft()

    @contextlib.contextmanager
    def shown_scope(self) -> Iterator[None]:
        """Shows lines, and the log messages of the block."""
        with self._progress.shown_scope():
            yield

    def update(self, results: SweepResults, running: Mapping[int, str]) -> None:
        """Prints the trials that have ended since the last call."""
        self._time_left.update(results)
        ended = {
            trial.number: trial
            for trial in results.trials
            if trial.status not in ("pending", "repeated")
        }
        if self._ended is None:
            self._ended = set(ended)
            count = format_count(len(results.trials), "trial")
            self._progress.phase(f"training {count} of {results.experiment}")
            repeats = repeats_text(results)
            if repeats:
                self._progress.note(repeats)
            if ended:
                self._progress.note(f"already ended: {status_counts(results)}")
        for number in sorted(set(ended) - self._ended):
            self._report_trial(results, ended[number], len(self._ended) + 1)
            self._ended.add(number)
        # A trial that is trained further ends again.
        self._ended &= set(ended)

    def _report_trial(self, results: SweepResults, trial: TrialResult, ended: int) -> None:
        best = results.best
        is_best = best is not None and best.number == trial.number
        if isinstance(self._progress, JsonProgress):
            self._progress.event(
                "trial",
                trial=trial.number,
                status=trial.status,
                step=trial.step,
                objective=objective_of(trial),
                settings=dict(trial.settings),
                best=is_best,
                ended=ended,
                trials=_count_trained(results),
                seconds_left=self._time_left.remaining_seconds(results),
            )
            return
        self._progress.note(
            _line(results, trial, ended, self._time_left.remaining_seconds(results))
        )


def _count_trained(results: SweepResults) -> int:
    return sum(trial.status != "repeated" for trial in results.trials)


def _line(results: SweepResults, trial: TrialResult, ended: int, left: float | None) -> str:
    values = settings_text(trial.settings, setting_names(results))
    best = results.best
    is_best = best is not None and best.number == trial.number
    parts = [
        f"trial {trial.number} {trial.status} at step {trial.step:,}: {results.objective_name} "
        f"{objective_text(trial)}{', best so far' if is_best else ''}  {values}",
        f"({ended} of {_count_trained(results)}",
    ]
    time_left = f", about {format_duration(left)} left)" if left else ")"
    return "  ".join(parts) + time_left
