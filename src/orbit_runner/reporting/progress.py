"""Progress on standard error: a bar on a terminal, else plain lines."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from orbit_runner.train.callbacks.base import Callback, Logs
from orbit_runner.utils.log import log_scope
from orbit_runner.utils.metrics import flat_scalars

if TYPE_CHECKING:
    from rich.progress import Progress

_LINE_SECONDS = 10.0
_WORK = ("tflops_per_second", "mfu")
_NOT_SHOWN = (
    "steps_per_second",
    "learning_rate",
    "validation_examples",
    "validation_loss",
    *_WORK,
)


class History(Callback):
    """Stores the results of a run for the final table."""

    def __init__(self) -> None:
        self.evaluations: list[tuple[int, dict[str, float]]] = []
        self.steps_per_second: list[float] = []
        self.work: dict[str, float] = {}
        self.last_step = 0
        self.target = 0
        self.inexact: list[str] | None = None

    def on_train_begin(self, run: Any) -> None:
        """Stores the start step and the target step."""
        self.last_step, self.target = run.step, run.train_steps

    def on_loop_end(self, run: Any, logs: Logs) -> None:
        """Stores the step and the speed."""
        self.last_step = run.step
        self.steps_per_second.append(float(logs["steps_per_second"]))
        self.work = {name: float(logs[name]) for name in _WORK if name in logs}

    def on_train_end(self, run: Any) -> None:
        """Stores the reasons why the weights may not be reproducible."""
        self.inexact = run.inexact_reasons()

    def on_evaluate(self, run: Any, logs: Logs) -> None:
        """Stores the metrics that are scalars."""
        self.last_step = run.step
        self.evaluations.append((run.step, scalars(logs)))


def scalars(logs: Mapping[str, Any]) -> dict[str, float]:
    """Returns the values of a loop's logs that are plain numbers."""
    numbers = {}
    for name, value in flat_scalars(logs).items():
        with contextlib.suppress(TypeError, ValueError):
            numbers[name] = float(value)
    return numbers


def format_logs(logs: Mapping[str, Any], *, loss: str) -> str:
    """Returns a loop's logs as text: the loss, whose key is `loss`, then the metrics."""
    numbers = scalars(logs)
    shown = [f"loss {numbers[loss]:.4f}"] if loss in numbers else []
    rest = (item for item in numbers.items() if item[0] not in (*_NOT_SHOWN, loss))
    return "  ".join(shown + [f"{name.replace('_', ' ')} {value:.4f}" for name, value in rest])


class PlainProgress(History):
    """Prints a line for each event, and one every ten seconds while nothing happens."""

    def __init__(self) -> None:
        super().__init__()
        self._phase, self._since = "starting", time.monotonic()
        self._last_line = 0.0
        self._lock, self._done = threading.Lock(), threading.Event()

    @contextlib.contextmanager
    def shown_scope(self) -> Iterator[None]:
        """Shows progress within a `with` block."""
        ticker = threading.Thread(target=self._tick, daemon=True)
        ticker.start()
        try:
            with log_scope(self.note, self.phase):
                yield
        finally:
            self._done.set()

    def _tick(self) -> None:
        while not self._done.wait(1.0):
            if time.monotonic() - max(self._last_line, self._since) > _LINE_SECONDS:
                self._line(f"… still {self._phase} ({time.monotonic() - self._since:.0f} s)")

    def _line(self, text: str) -> None:
        with self._lock:
            self._last_line = time.monotonic()
            print(text, file=sys.stderr, flush=True)

    def phase(self, text: str) -> None:
        """Prints the name of the next phase."""
        self._phase, self._since = text, time.monotonic()
        self._line(f"{text} …")

    def on_train_begin(self, run: Any) -> None:
        """Prints the start step and the target step."""
        super().on_train_begin(run)
        self._phase, self._since = "tracing the first step", time.monotonic()
        self._line(f"training from step {run.step} to {run.train_steps} …")

    def on_loop_end(self, run: Any, logs: Logs) -> None:
        """Prints step, metrics and speed, at most every ten seconds and at the target step."""
        super().on_loop_end(run, logs)
        self._phase, self._since = f"training after step {run.step}", time.monotonic()
        if time.monotonic() - self._last_line > _LINE_SECONDS or run.step >= self.target:
            rate = float(logs["steps_per_second"])
            left = (self.target - run.step) / rate if rate else 0.0
            words = format_logs(logs, loss="training_loss")
            self._line(
                f"step {run.step}/{self.target}  {words}  {rate:.4g} steps/s  {left:.0f} s left"
            )

    def on_evaluate(self, run: Any, logs: Logs) -> None:
        """Prints the metrics."""
        super().on_evaluate(run, logs)
        self._line(f"evaluation at step {run.step}: {format_logs(logs, loss='validation_loss')}")

    def note(self, text: str) -> None:
        """Prints the note."""
        self._line(text)


class BarProgress(History):
    """Shows a live bar, with the results of evaluations above it."""

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._bar: Progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[words]}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            refresh_per_second=8,
        )
        self._task = self._bar.add_task("starting", total=None, words="")

    @contextlib.contextmanager
    def shown_scope(self) -> Iterator[None]:
        """Shows the bar within a `with` block."""
        with self._bar, log_scope(self.note, self.phase):
            yield

    def phase(self, text: str) -> None:
        """Shows the name of the next phase as the description of the bar."""
        self._bar.update(self._task, description=text)

    def on_train_begin(self, run: Any) -> None:
        """Sets the length of the bar."""
        super().on_train_begin(run)
        self._bar.update(
            self._task,
            description="tracing the first step",
            total=run.train_steps,
            completed=run.step,
        )

    def on_loop_end(self, run: Any, logs: Logs) -> None:
        """Updates the bar."""
        super().on_loop_end(run, logs)
        rate = float(logs["steps_per_second"])
        left = (self.target - run.step) / rate if rate else 0.0
        words = f"{format_logs(logs, loss='training_loss')}  {rate:.4g} steps/s  {left:.0f} s left"
        description = f"step {run.step}/{self.target}"
        self._bar.update(self._task, description=description, completed=run.step, words=words)

    def on_evaluate(self, run: Any, logs: Logs) -> None:
        """Prints the metrics above the bar."""
        super().on_evaluate(run, logs)
        self._bar.console.print(
            f"evaluation at step {run.step}: {format_logs(logs, loss='validation_loss')}",
            highlight=False,
        )

    def note(self, text: str) -> None:
        """Prints the note above the bar."""
        self._bar.console.print(text, highlight=False, markup=False)


class BriefProgress(PlainProgress):
    """Prints only phases, for a worker whose other lines would repeat those of the chief."""

    def on_loop_end(self, run: Any, logs: Logs) -> None:
        """Stores the step and the speed, and prints nothing."""
        History.on_loop_end(self, run, logs)
        self._phase, self._since = f"training after step {run.step}", time.monotonic()

    def on_evaluate(self, run: Any, logs: Logs) -> None:
        """Stores the metrics, and prints nothing."""
        History.on_evaluate(self, run, logs)


def make_progress(kind: str = "auto", *, brief: bool = False) -> PlainProgress | BarProgress:
    """Returns the progress display, which is not shown yet.

    `kind` is `bar`, `plain` or `auto`: a bar if standard error is a terminal with UTF-8, else plain
    lines. `brief` is for a process whose progress another process shows, too.
    """
    if brief:
        return BriefProgress()
    draws = sys.stderr.isatty() and "utf" in sys.stderr.encoding.lower()
    bar = kind == "bar" or (kind == "auto" and draws)
    return BarProgress() if bar else PlainProgress()
