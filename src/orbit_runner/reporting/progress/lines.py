"""Progress as lines: plain ones for logs and pipes, and JSON for programs; and how it is chosen.

`docs/run_directory.md` describes the keys.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from orbit_runner.reporting.progress.history import (
    LEARNING_RATE,
    TRAINING_LOSS,
    History,
    evaluation_line,
    loop_line,
    other_metrics,
)
from orbit_runner.train.callbacks.base import Logs
from orbit_runner.utils.log import is_warning, log_scope

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
                self._line(f"… still {self._phase} ({now - self._since:.0f} s)")

    def _line(self, text: str) -> None:
        with self._lock:
            self._last_line = time.monotonic()
            print(text, file=sys.stderr, flush=True)

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
        self._line(f"training from step {run.step} to {run.train_steps} …")

    def on_loop_end(self, run: RunView, logs: Logs) -> None:
        """Prints step, metrics and speed, if a line is due and at the target step."""
        super().on_loop_end(run, logs)
        self._phase = f"training after step {self.last_step}"
        self._since = time.monotonic()
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


class QuietProgress(History):
    """Prints warnings and errors only."""

    @contextlib.contextmanager
    def shown_scope(self) -> Iterator[None]:
        """Prints the warnings of a `with` block."""
        with log_scope(self):
            yield

    def phase(self, text: str, *, minor: bool = False) -> None:
        """Prints nothing."""

    def detail(self, text: str, fraction: float | None = None) -> None:
        """Prints nothing."""

    def note(self, text: str) -> None:
        """Prints the note if it is a warning or an error."""
        if is_warning(text):
            print(text, file=sys.stderr, flush=True)


class JsonProgress(History):
    """Prints one JSON object in a line for each event.

    `brief` is for a worker whose steps and evaluations the chief reports.
    """

    def __init__(self, interval: float = 10.0, *, brief: bool = False) -> None:
        super().__init__()
        self._interval_seconds = interval
        self._brief = brief
        self._last_step_line = self._last_detail = 0.0
        self._lock = threading.Lock()
        self._stream = sys.stderr

    @contextlib.contextmanager
    def shown_scope(self) -> Iterator[None]:
        """Prints the events of a `with` block, and as notes what other code prints."""
        with log_scope(self), contextlib.redirect_stderr(_Notes(self)):
            yield

    def event(self, event: str, **values: object) -> None:
        """Prints an event: its name, the time and values."""
        from orbit_runner.utils.files import to_jsonable  # Imports NumPy.

        record = to_jsonable({"event": event, "time": round(time.time(), 3), **values})
        with self._lock:
            print(json.dumps(record, allow_nan=False), file=self._stream, flush=True)

    def phase(self, text: str, *, minor: bool = False) -> None:
        """Prints the name of the next phase."""
        self.event("phase", phase=text, minor=minor)

    def detail(self, text: str, fraction: float | None = None) -> None:
        """Prints how far the phase is, at most once in an interval."""
        now = time.monotonic()
        if now - self._last_detail > self._interval_seconds:
            self._last_detail = now
            self.event("detail", text=text, fraction=fraction)

    def note(self, text: str) -> None:
        """Prints the note."""
        self.event("note", level="warning" if is_warning(text) else "info", text=text)

    def on_train_begin(self, run: RunView) -> None:
        """Prints the start step and the target step."""
        super().on_train_begin(run)
        if not self._brief:
            self.event("train", step=self.last_step, train_steps=self.target, epochs=self.epochs)

    def on_loop_end(self, run: RunView, logs: Logs) -> None:
        """Prints step, metrics and speed, at most once in an interval and at the target step."""
        super().on_loop_end(run, logs)
        now = time.monotonic()
        is_due = now - self._last_step_line > self._interval_seconds
        if self._brief or not (is_due or self.last_step >= self.target):
            return
        self._last_step_line = now
        self.read_metrics(logs)
        self.event(
            "step",
            step=self.last_step,
            train_steps=self.target,
            epoch=self.epoch,
            epochs=self.epochs,
            loss=self.metrics.get(TRAINING_LOSS),
            learning_rate=self.metrics.get(LEARNING_RATE),
            metrics=other_metrics(self.metrics),
            steps_per_second=self.steps_per_second,
            examples_per_second=self.examples_per_second,
            seconds_left=self.seconds_left,
        )

    def on_evaluate(self, run: RunView, logs: Logs) -> None:
        """Prints the metrics, and the best result so far."""
        super().on_evaluate(run, logs)
        if self._brief:
            return
        step, metrics = self.evaluations[-1]
        best = None
        if self.best is not None:
            best = dict(zip(("metric", "value", "step"), self.best, strict=True))
        self.event("evaluation", step=step, metrics=metrics, best=best)


class _Notes(io.TextIOBase):
    """A text stream that turns lines into notes."""

    def __init__(self, progress: JsonProgress) -> None:
        self._progress = progress
        self._rest = ""

    def write(self, text: str) -> int:
        """Prints a note for each complete line that is not empty."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in filter(str.strip, lines):
            self._progress.note(line)
        return len(text)


def make_progress(
    kind: str = "auto",
    *,
    interval: float = 10.0,
    brief: bool = False,
    title: str = "",
    place: str = "",
) -> PlainProgress | QuietProgress | JsonProgress | LiveProgress:
    """Returns the object that shows progress, which is not shown yet.

    `kind` is a value of `--progress`, and `interval` the seconds between lines. `brief` is for a
    process whose progress another process shows, too. `title` and `place`, such as the run
    directory, are the first line of the live display.
    """
    if kind == "none":
        return QuietProgress()
    if kind == "json":
        return JsonProgress(interval, brief=brief)
    ipython = sys.modules.get("IPython") if kind in ("auto", "bar") and not brief else None
    # The shell of a terminal has no kernel.
    if ipython is not None and getattr(ipython.get_ipython(), "kernel", None) is not None:
        from orbit_runner.reporting.progress.live import NotebookProgress

        return NotebookProgress(ipython.display.display, title, place)
    if kind == "plain" or brief or not can_draw(forced=kind == "bar"):
        return PlainProgress(interval, brief=brief)
    from orbit_runner.reporting.progress.live import LiveProgress

    return LiveProgress(title, place)


def can_draw(*, forced: bool) -> bool:
    """Returns whether standard error is a terminal that can move its cursor and shows UTF-8."""
    if not sys.stderr.isatty() or os.environ.get("TERM", "").lower() in ("dumb", "unknown"):
        return False
    return forced or "utf" in sys.stderr.encoding.lower()
