"""The trials of a sweep as a table at the bottom of a terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console
from rich.text import Text

from orbit_runner.errors import format_count
from orbit_runner.reporting.numbers import format_duration
from orbit_runner.reporting.progress.live import LiveLines
from orbit_runner.sweep.results import SweepResults, TrialResult
from orbit_runner.sweep.view.ranking import rank_trials
from orbit_runner.sweep.view.tables import trial_lines
from orbit_runner.sweep.view.time_left import TimeLeft
from orbit_runner.utils.log import log_scope
from orbit_runner.utils.signals import hidden_cursor_scope

_LEAST_WIDTH, _LEAST_ROWS = 20, 3
_BAD = ("diverged", "failed")


class TerminalTable:
    """Draws the trials that fit on the terminal. Other messages scroll above them."""

    def __init__(self, place: str = "") -> None:
        self._console = Console(stderr=True, highlight=False)
        self._place = place
        self._detail = ""
        self._results: SweepResults | None = None
        self._running: Mapping[int, str] = {}
        self._time_left = TimeLeft()
        self._display = LiveLines(self._console, self._lines)

    @contextlib.contextmanager
    def shown_scope(self) -> Iterator[None]:
        """Shows the table within a `with` block."""
        with hidden_cursor_scope(), self._display, log_scope(self):
            yield

    def update(self, results: SweepResults, running: Mapping[int, str]) -> None:
        """Shows new results."""
        self._time_left.update(results)
        self._running = dict(running)
        self._results = results

    def note(self, text: str) -> None:
        """Prints the note above the table."""
        self._console.print(text, markup=False, soft_wrap=True)

    def phase(self, text: str, *, minor: bool = False) -> None:
        """Shows the phase in the first line until there are results."""
        self._detail = text

    def detail(self, text: str, fraction: float | None = None) -> None:
        """Shows how far the phase is in the first line until there are results."""
        self._detail = text

    def _lines(self, columns: int) -> list[Text]:
        results = self._results
        width = max(_LEAST_WIDTH, columns - 1)
        if results is None:
            return [Text(self._detail[:width] or "starting", style="bold")]
        times = [f"{format_duration(self._time_left.elapsed_seconds())} elapsed"]
        left = self._time_left.remaining_seconds(results)
        if left:
            times.append(f"about {format_duration(left)} left")
        height = max(_LEAST_ROWS, self._console.height - 2)
        return table_lines(results, self._running, width, height, [*times, self._place])


def table_lines(
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
        notes: Texts for the first line, such as the time left.
    """
    first = Text(
        "  ".join([results.experiment, count_text(results, running), *filter(None, notes)])
    )
    first.stylize("bold", 0, len(results.experiment))
    first.truncate(width, overflow="ellipsis")
    rows = height - 3  # The first line, the titles, and the number of trials that are not shown.
    shown = visible_trials(results, running, max(1, rows))
    titles, *lines = trial_lines(results, shown, width, running=running)
    texts = [first, Text(titles, style="dim")]
    for trial, line in zip(shown, lines, strict=True):
        texts.append(Text(line, style=_style(results, trial, running)))
    hidden = len(results.trials) - len(shown)
    if hidden:
        texts.append(Text(f"… and {format_count(hidden, 'more trial')}", style="dim"))
    return texts[:height]


def count_text(results: SweepResults, running: Mapping[int, str]) -> str:
    """Returns the number of trials by status, such as `3 finished, 2 running, 27 pending`."""
    statuses = {trial.number: trial.status for trial in results.trials}
    pending = sum(status == "pending" for status in statuses.values())
    active = sum(statuses.get(number) == "pending" for number in running)
    finished = sum(status == "finished" for status in statuses.values())
    parts = [f"{finished} finished", f"{active} running", f"{pending - active} pending"]
    repeated = sum(status == "repeated" for status in statuses.values())
    stopped_or_failed = len(statuses) - finished - pending - repeated
    return ", ".join(
        [
            *parts,
            *([f"{stopped_or_failed} stopped or failed"] if stopped_or_failed else []),
            *([f"{repeated} repeated"] if repeated else []),
        ]
    )


def visible_trials(
    results: SweepResults, running: Mapping[int, str], most: int
) -> list[TrialResult]:
    """Returns the trials to show: those that run, the best ones, then others, by number."""
    if len(results.trials) <= most:
        return list(results.trials)
    order = rank_trials(results)
    active = [trial for trial in results.trials if trial.number in running]
    chosen = {trial.number: trial for trial in [*order[:1], *active, *order]}
    return sorted(list(chosen.values())[:most], key=lambda trial: trial.number)


def _style(results: SweepResults, trial: TrialResult, running: Mapping[int, str]) -> str:
    best = results.best
    if best is not None and trial.number == best.number:
        return "bold green"
    if trial.number in running:
        return "cyan"
    if trial.status in _BAD:
        return "red"
    return "" if trial.status == "finished" else "dim"
