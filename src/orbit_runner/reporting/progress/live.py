"""Progress as a live display at the bottom of a terminal."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.text import Text

from orbit_runner.reporting.progress.history import History
from orbit_runner.reporting.progress.layout import TRAINING, View, lines
from orbit_runner.reporting.progress.live_lines import LiveLines
from orbit_runner.reporting.progress.text import evaluation_line
from orbit_runner.train.callbacks.base import Logs
from orbit_runner.utils.log import log_scope
from orbit_runner.utils.terminal import hidden_cursor_scope

_LEAST_WIDTH = 10


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
