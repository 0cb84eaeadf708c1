"""Progress as one output of a notebook's cell, which changes in place."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterator
from html import escape
from typing import Any

from orbit_runner.errors import Interrupted
from orbit_runner.reporting.numbers import format_duration
from orbit_runner.reporting.progress.history import (
    TRAINING_LOSS,
    VALIDATION_LOSS,
    History,
    epoch_text,
    format_metric,
    format_metrics,
    speed_texts,
    step_text,
    time_left_text,
)
from orbit_runner.train.callbacks.base import Logs
from orbit_runner.utils.log import is_warning, log_scope

_REFRESH_SECONDS = 0.25
_MOST_NOTES = 12
_TRAINING = "training"
# Colors and fonts are those of the notebook.
_PROGRESS = '<progress max="1" value="{:.4f}" style="width:100%;max-width:640px"></progress>'

Display = Callable[..., Any]  # `IPython.display.display`


def notebook_display() -> Display | None:
    """Returns the function that displays an object in a notebook; None outside of notebooks.

    Does not import IPython: a notebook has imported it.
    """
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    # The shell of a terminal has no kernel.
    if ipython is None or getattr(shell, "kernel", None) is None:
        return None
    display: Display = ipython.display.display
    return display


class NotebookProgress(History):
    """Shows the state of a run as a bar and a few lines, which change at most four times a second.

    Notes and warnings are below them.
    """

    def __init__(self, display: Display, title: str = "", place: str = "") -> None:
        super().__init__()
        self._display = display
        self._title = title
        self._place = place
        self._phase = "starting"
        self._detail = ""
        self._began = self._updated = time.monotonic()
        self._notes: list[str] = []
        self._handle: Any = None
        self._has_ended = False

    @contextlib.contextmanager
    def shown_scope(self) -> Iterator[None]:
        """Shows progress within a `with` block; what it showed last stays."""
        self._handle = self._display(self._panel(), display_id=True)
        # In a notebook, unlike elsewhere, TensorFlow prints its INFO messages.
        logger = logging.getLogger("tensorflow")
        logger.addFilter(_is_shown)
        try:
            with log_scope(self):
                yield
            self._phase = "done"
        except (Interrupted, KeyboardInterrupt):
            self._phase = "interrupted"
            raise
        finally:
            logger.removeFilter(_is_shown)
            self._has_ended = True
            self._detail = ""
            self._update(force=True)

    def phase(self, text: str, *, minor: bool = False) -> None:
        """Shows the name of the next phase."""
        self._phase = text
        self._detail = ""
        self._update()

    def detail(self, text: str, fraction: float | None = None) -> None:
        """Shows how far the phase is."""
        self._detail = text
        self._update()

    def note(self, text: str) -> None:
        """Shows the note."""
        self._notes.append(text)
        self._update(force=is_warning(text))

    def on_loop_end(self, run: Any, logs: Logs) -> None:
        """Shows that the run is training."""
        super().on_loop_end(run, logs)
        self._phase = _TRAINING
        self._update()

    def on_evaluate(self, run: Any, logs: Logs) -> None:
        """Shows the metrics."""
        super().on_evaluate(run, logs)
        self._update()

    def _update(self, *, force: bool = False) -> None:
        now = time.monotonic()
        if self._handle is None or (now - self._updated < _REFRESH_SECONDS and not force):
            return
        self._updated = now
        self._handle.update(self._panel())

    def _panel(self) -> _Panel:
        is_training = self.started is not None
        position = [step_text(self), epoch_text(self)] if is_training else []
        speed = [*speed_texts(self)] if is_training else []
        if is_training and not self._has_ended:
            speed.append(time_left_text(self))
        elapsed = f"{format_duration(time.monotonic() - self._began)} elapsed"
        lines = [
            _joined(self._phase, self._detail, *position),
            _joined(format_metrics(self.metrics, loss=TRAINING_LOSS), *speed, elapsed),
        ]
        if self.evaluations:
            step, numbers = self.evaluations[-1]
            metrics = format_metrics(numbers, loss=VALIDATION_LOSS)
            best = "" if self.best is None else _best_text(*self.best)
            lines.append(_joined(f"evaluation at step {step:,}", metrics, best))
        fraction = min(1.0, self.last_step / self.target) if self.target else 0.0
        title = _joined(self._title, self._place)
        return _Panel(title, fraction, lines, self._notes[-_MOST_NOTES:])


def _is_shown(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING


def _joined(*texts: str) -> str:
    return " · ".join(filter(None, texts))


def _best_text(name: str, value: float, step: int) -> str:
    return f"best {format_metric(name, value)} at step {step:,}"


class _Panel:
    """What is shown; a notebook displays it as HTML."""

    def __init__(self, title: str, fraction: float, lines: list[str], notes: list[str]) -> None:
        self._title = title
        self._fraction = fraction
        self._lines = lines
        self._notes = notes

    def __repr__(self) -> str:
        return "\n".join([self._title, *self._lines, *self._notes])

    def _repr_html_(self) -> str:
        lines = "<br>".join(map(escape, self._lines))
        notes = escape("\n".join(self._notes))
        below = f'<pre style="margin:0;white-space:pre-wrap">{notes}</pre>' if notes else ""
        bar = _PROGRESS.format(self._fraction)
        # A browser shows two spaces as one otherwise.
        text = f'<div style="white-space:pre-wrap">{lines}</div>'
        return f"<div><b>{escape(self._title)}</b><br>{bar}{text}{below}</div>"
