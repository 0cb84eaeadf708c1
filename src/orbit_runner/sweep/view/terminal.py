"""The trials of a sweep in a terminal, on standard error while it runs.

On a terminal, a table that is updated; elsewhere, a line or a JSON event for each trial that ends.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console
from rich.text import Text

from orbit_runner.errors import format_count
from orbit_runner.reporting.numbers import format_duration
from orbit_runner.reporting.progress.lines import JsonProgress, can_draw, make_progress
from orbit_runner.reporting.progress.live import LiveLines
from orbit_runner.sweep.results import SweepResults, TrialResult
from orbit_runner.sweep.view.ranking import (
    objective_of,
    objective_text,
    rank_trials,
    repeats_text,
    settings_text,
    status_counts,
)
from orbit_runner.sweep.view.setting_axis import setting_names
from orbit_runner.sweep.view.tables import trial_lines
from orbit_runner.utils.log import log_scope
from orbit_runner.utils.terminal import hidden_cursor_scope

_LEAST_WIDTH, _LEAST_ROWS = 20, 3
_BAD = ("diverged", "failed")


def make_display(kind: str, *, interval: float = 10.0, place: str = "") -> TrialTable | TrialLines:
    """Returns what shows the trials; `kind` is a value of `--progress`.

    `interval` is the seconds between lines that report that the sweep is still running. `place` is
    the directory of the sweep, which the first line of the table shows.
    """
    if kind in ("auto", "bar") and can_draw(forced=kind == "bar"):
        return TrialTable(place)
    return TrialLines("plain" if kind in ("auto", "bar") else kind, interval)


class TrialLines:
    """Prints a line, or a JSON event, for each trial that ends."""

    def __init__(self, kind: str, interval: float) -> None:
        self._progress = make_progress(kind, interval=interval)
        self._ended: set[int] | None = None

    @contextlib.contextmanager
    def shown_scope(self) -> Iterator[None]:
        """Shows lines, and the log messages of the block."""
        with self._progress.shown_scope():
            yield

    def update(self, results: SweepResults, running: Mapping[int, str]) -> None:
        """Prints the trials that have ended since the last call."""
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
            self._ended.add(number)
            self._report_trial(results, ended[number], len(self._ended))

    def _report_trial(self, results: SweepResults, trial: TrialResult, ended: int) -> None:
        is_best = _is_best(results, trial)
        trained = sum(trial.status != "repeated" for trial in results.trials)
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
                trials=trained,
            )
            return
        values = settings_text(trial.settings, setting_names(results))
        self._progress.note(
            f"trial {trial.number} {trial.status} at step {trial.step:,}: {results.objective_name} "
            f"{objective_text(trial)}{', best so far' if is_best else ''}  {values}  "
            f"({ended} of {trained})"
        )


class TrialTable:
    """Draws the trials that fit on the terminal. Other messages scroll above them."""

    def __init__(self, place: str = "") -> None:
        self._console = Console(stderr=True, highlight=False)
        self._place = place
        self._results: SweepResults | None = None
        self._running: Mapping[int, str] = {}
        self._started = time.monotonic()
        self._display = LiveLines(self._console, self._lines)

    @contextlib.contextmanager
    def shown_scope(self) -> Iterator[None]:
        """Shows the table within a `with` block."""
        with hidden_cursor_scope(), self._display, log_scope(self):
            yield

    def update(self, results: SweepResults, running: Mapping[int, str]) -> None:
        """Shows new results.

        `running` is what each trial that is being trained does, such as `step 120 of 300`, by its
        number; "" shows `running`.
        """
        self._running = dict(running)
        self._results = results

    def note(self, text: str) -> None:
        """Prints the note above the table."""
        self._console.print(text, markup=False, soft_wrap=True)

    def phase(self, text: str, *, minor: bool = False) -> None:
        """Shows nothing: the table says what runs."""

    def detail(self, text: str, fraction: float | None = None) -> None:
        """Shows nothing."""

    def _lines(self, columns: int) -> list[Text]:
        width = max(_LEAST_WIDTH, columns - 1)
        if self._results is None:
            return [Text("starting", style="bold")]
        elapsed = f"{format_duration(time.monotonic() - self._started)} elapsed"
        height = max(_LEAST_ROWS, self._console.height - 2)
        return live_lines(self._results, self._running, width, height, [elapsed, self._place])


def live_lines(
    results: SweepResults,
    running: Mapping[int, str],
    width: int,
    height: int,
    notes: Sequence[str] = (),
) -> list[Text]:
    """Returns at most `height` lines of at most `width` characters.

    Args:
        results: The sweep.
        running: What the trials that are being trained do, by their number.
        width: The number of characters in a line.
        height: The number of lines.
        notes: Texts for the first line, such as the time.
    """
    counts = [status_counts(results), f"{len(running)} running"]
    first = Text("  ".join([results.experiment, ", ".join(counts), *filter(None, notes)]))
    first.stylize("bold", 0, len(results.experiment))
    first.truncate(width, overflow="ellipsis")
    # Without the first line, the titles, and the number of trials that are not shown.
    shown = _visible_trials(results, running, max(1, height - 3))
    titles, *lines = trial_lines(results, shown, width, running=running)
    texts = [first, Text(titles, style="dim")]
    for trial, line in zip(shown, lines, strict=True):
        texts.append(Text(line, style=_style(results, trial, running)))
    hidden = len(results.trials) - len(shown)
    if hidden:
        texts.append(Text(f"… and {format_count(hidden, 'more trial')}", style="dim"))
    return texts[:height]


def _visible_trials(
    results: SweepResults, running: Mapping[int, str], most: int
) -> list[TrialResult]:
    """Returns the trials to show: those that run, the best ones, then others, by number."""
    order = rank_trials(results)
    active = [trial for trial in results.trials if trial.number in running]
    chosen = {trial.number: trial for trial in [*order[:1], *active, *order]}
    return sorted(list(chosen.values())[:most], key=lambda trial: trial.number)


def _is_best(results: SweepResults, trial: TrialResult) -> bool:
    best = results.best
    return best is not None and best.number == trial.number


def _style(results: SweepResults, trial: TrialResult, running: Mapping[int, str]) -> str:
    if _is_best(results, trial):
        return "bold green"
    if trial.number in running:
        return "cyan"
    if trial.status in _BAD:
        return "red"
    return "" if trial.status == "finished" else "dim"
