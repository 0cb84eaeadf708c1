"""Progress as plain lines, for logs and pipes; and how it is chosen."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from orbit_runner.reporting.progress.history import TRAINING, History, evaluation_line, loop_line
from orbit_runner.train.callbacks.base import Logs
from orbit_runner.utils.log import is_warning, log_scope
from orbit_runner.utils.streams import is_terminal, print_message

if TYPE_CHECKING:
    from orbit_runner.reporting.progress.live import LiveProgress
    from orbit_runner.train.callbacks.base import RunView


class PlainProgress(History):
    """Prints a line for each event, and one in each interval while nothing happens.

    `brief` is for a worker whose other lines would repeat those of the chief: it prints phases and
    notes only.
    """

    def __init__(self, interval: float = 10.0, *, brief: bool = False) -> None:
        super().__init__()
        self._interval_seconds = interval
        self._brief = brief
        self._phase = "starting"
        self._since = time.monotonic()
        self._last_line = 0.0
        self._lock = threading.Lock()
        self._done = threading.Event()

    @contextlib.contextmanager
    def shown_scope(self) -> Iterator[None]:
        """Shows progress within a `with` block."""
        ticker = threading.Thread(target=self._tick, daemon=True)
        ticker.start()
        try:
            with log_scope(self):
                yield
        finally:
            self._done.set()

    def _tick(self) -> None:
        while not self._done.wait(1.0):
            now = time.monotonic()
            if now - max(self._last_line, self._since) > max(1.0, self._interval_seconds):
                step = f" after step {self.last_step:,}" if self._phase == TRAINING else ""
                self._line(f"… still {self._phase}{step} ({now - self._since:.0f} s)")

    def _line(self, text: str) -> None:
        with self._lock:
            self._last_line = time.monotonic()
            print_message(text)

    def _is_due(self) -> bool:
        return time.monotonic() - self._last_line > self._interval_seconds

    def phase(self, text: str, *, minor: bool = False) -> None:
        """Prints the name of the next phase. A minor one is only printed if it takes long."""
        self._phase = text
        self._since = time.monotonic()
        if not minor:
            self._line(f"{text} …")

    def detail(self, text: str, fraction: float | None = None) -> None:
        """Prints how far the phase is, if a line is due."""
        if self._is_due():
            self._line(text)

    def on_train_begin(self, run: RunView) -> None:
        """Prints the start step and the target step."""
        super().on_train_begin(run)
        self.phase(TRAINING, minor=True)
        self._line(f"training from step {run.step} to {run.train_steps} …")

    def on_loop_end(self, run: RunView, logs: Logs) -> None:
        """Prints step, metrics and speed, if a line is due and at the target step."""
        super().on_loop_end(run, logs)
        self.phase(TRAINING, minor=True)
        if not self._brief and (self._is_due() or self.last_step >= self.target):
            self.read_metrics(logs)
            self._line(loop_line(self))

    def on_evaluate(self, run: RunView, logs: Logs) -> None:
        """Prints the metrics."""
        super().on_evaluate(run, logs)
        if not self._brief:
            self._line(evaluation_line(*self.evaluations[-1]))

    def note(self, text: str) -> None:
        """Prints the note."""
        self._line(text)


class QuietProgress(PlainProgress):
    """Prints warnings and errors only."""

    def __init__(self) -> None:
        super().__init__(interval=math.inf)

    def _line(self, text: str) -> None:
        if is_warning(text):
            super()._line(text)


def make_progress(
    kind: str = "auto", *, brief: bool = False, title: str = "", place: str = ""
) -> PlainProgress | QuietProgress | LiveProgress:
    """Returns the object that shows progress, which is not shown yet.

    `kind` is a value of `--progress`. `brief` is for a process whose progress another process
    shows, too. `title` and `place`, such as the run directory, are the first line of the live
    display.
    """
    if kind == "none":
        return QuietProgress()
    if kind == "plain" or brief or not can_draw(forced=kind == "bar"):
        return PlainProgress(brief=brief)
    from orbit_runner.reporting.progress.live import LiveProgress

    return LiveProgress(title, place)


def can_draw(*, forced: bool) -> bool:
    """Returns whether standard error is a terminal that can move its cursor and shows UTF-8."""
    if not is_terminal(sys.stderr) or os.environ.get("TERM", "").lower() in ("dumb", "unknown"):
        return False
    return forced or "utf" in sys.stderr.encoding.lower()
