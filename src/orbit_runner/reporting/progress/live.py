"""Progress as a live display at the bottom of a terminal."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console, ConsoleRenderable
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType
from rich.text import Text

from orbit_runner.reporting.progress.history import History
from orbit_runner.reporting.progress.layout import TRAINING, View, lines
from orbit_runner.reporting.progress.text import evaluation_line
from orbit_runner.train.callbacks.base import Logs
from orbit_runner.utils.log import log_scope
from orbit_runner.utils.terminal import hidden_cursor_scope

_LEAST_WIDTH = 10
# Each costs about a millisecond of training. Numbers change once a second.
_REFRESHES_PER_SECOND = 2


class LiveProgress(History):
    """Shows the state of a run in a few lines that change. Other messages scroll above them."""

    def __init__(self, title: str = "", place: str = "") -> None:
        super().__init__()
        self._console = Console(stderr=True, highlight=False)
        self._view = View(self, title, place, since=time.monotonic())
        self._view.ascii = not self._console.encoding.startswith("utf")
        self._display = LiveLines(self._console, self._lines)

    @contextlib.contextmanager
    def shown_scope(self) -> Iterator[None]:
        """Shows the display within a `with` block."""
        with hidden_cursor_scope(), self._display, log_scope(self):
            yield

    def _lines(self, columns: int) -> list[Text]:
        # One column less, because terminals differ in what they do after the last one.
        shown = lines(self._view, max(_LEAST_WIDTH, columns - 1), time.monotonic())
        if len(shown) >= self._console.height:
            shown = shown[1:2]  # The line of the phase.
        return shown

    def phase(self, text: str, *, minor: bool = False) -> None:
        """Shows the name of the next phase."""
        self._view.phase, self._view.since = text, time.monotonic()
        self._view.detail, self._view.fraction = "", None

    def detail(self, text: str, fraction: float | None = None) -> None:
        """Shows how far the phase is."""
        self._view.fraction, self._view.detail = fraction, text

    def on_loop_end(self, run: Any, logs: Logs) -> None:
        """Shows that the run is training."""
        super().on_loop_end(run, logs)
        if self._view.phase != TRAINING:
            self.phase(TRAINING)

    def on_evaluate(self, run: Any, logs: Logs) -> None:
        """Prints the metrics above the display."""
        super().on_evaluate(run, logs)
        self.note(evaluation_line(*self.evaluations[-1]))

    def note(self, text: str) -> None:
        """Prints the note above the display."""
        self._console.print(text, markup=False, soft_wrap=True)


class LiveLines(Live):
    """Lines that are drawn again and again, and remain intact if the terminal becomes narrower."""

    def __init__(self, console: Console, get_lines: Callable[[int], list[Text]]) -> None:
        self._get_lines = get_lines
        self._widths: list[int] = []  # of the current lines
        self._drawn_widths: list[int] = []  # of the lines on the screen
        self._drawn_columns = 0  # of the terminal when they were drawn
        super().__init__(
            console=console,
            get_renderable=self._text,
            refresh_per_second=_REFRESHES_PER_SECOND,
            transient=True,
            # What code prints to a file or pipe must still arrive there.
            redirect_stdout=sys.stdout.isatty(),
            vertical_overflow="crop",
        )

    def _text(self) -> Text:
        shown = self._get_lines(self.console.width)
        self._widths = [line.cell_len for line in shown]
        return Text("\n", no_wrap=True, overflow="crop").join(shown)

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Returns what is printed, preceded by codes that erase the previous lines."""
        found = super().process_renderables(renderables)
        columns, before = self.console.width, self._drawn_columns
        wrapped = sum((min(width, before) - 1) // columns for width in self._drawn_widths)
        self._drawn_widths, self._drawn_columns = self._widths, columns
        return [_erase(wrapped), *found] if columns < before and wrapped else found


def _erase(rows: int) -> Control:
    """Returns codes that erase the rows above the cursor that a narrower terminal has added.

    Rich itself erases as many rows as it has written, beginning at the cursor.
    """
    up_and_erase = ((ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2))
    begin = (ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2))
    return Control(*begin, *(up_and_erase * rows))
