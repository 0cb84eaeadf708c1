"""The results of a run, for its final table and displays of its progress, and their texts."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from orbit_runner.reporting.numbers import format_duration, format_number, short_number
from orbit_runner.run_directory.metric_records import is_result
from orbit_runner.run_directory.run_reader import NON_METRICS
from orbit_runner.train.callbacks.base import Callback, Logs

if TYPE_CHECKING:
    from orbit_runner.train.callbacks.base import RunView
    from orbit_runner.train.run import Run

TRAINING_LOSS, VALIDATION_LOSS = "training_loss", "validation_loss"
LEARNING_RATE = "learning_rate"
TRAINING = "training"  # the phase
_NOT_SHOWN = (*NON_METRICS, LEARNING_RATE, TRAINING_LOSS, VALIDATION_LOSS)
_WORK = ("tflops_per_second", "mfu")
# Reading the metrics takes longer than a short loop, so it is not done after each one.
_READ_SECONDS = 0.1


class History(Callback):
    """Stores the results of a run. Displays are subclasses, which also show them."""

    def __init__(self) -> None:
        self.evaluations: list[tuple[int, dict[str, float]]] = []
        self.best: tuple[str, float, int] | None = None  # metric, value, step
        self.steps_per_second: float | None = None  # of the last loop
        self.work: dict[str, float] = {}
        self.inexact: list[str] | None = None
        self.last_step = self.target = 0
        self.steps_per_epoch = self.examples_per_step = 0.0  # 0: unknown
        self.started: float | None = None  # when training began, on the monotonic clock
        self.metrics: dict[str, float] = {}  # of the last loop, with loss and learning rate
        self._read_at = 0.0

    def on_train_begin(self, run: Any) -> None:
        """Stores the start step, the target step and what steps are converted to."""
        self.last_step = run.step
        self.target = run.train_steps
        self.steps_per_epoch = run.steps_per_epoch
        self.examples_per_step = run.examples_per_step
        self.best = _best(run)
        self.started = time.monotonic()

    def on_loop_end(self, run: RunView, logs: Logs) -> None:
        """Stores the step, the speed, and at most ten times a second the metrics."""
        self.last_step = run.step
        self.steps_per_second = float(logs["steps_per_second"])
        self.work = {name: float(logs[name]) for name in _WORK if name in logs}
        now = time.monotonic()
        if now - self._read_at >= _READ_SECONDS or self.last_step >= self.target:
            self._read_at = now
            self.read_metrics(logs)

    def read_metrics(self, logs: Logs) -> None:
        """Stores the metrics of a loop."""
        self.metrics = _scalars(logs)

    def on_evaluate(self, run: Any, logs: Logs) -> None:
        """Stores the metrics that are scalars."""
        self.last_step = run.step
        self.evaluations.append((run.step, _scalars(logs)))
        self.best = _best(run)

    def on_train_end(self, run: Any) -> None:
        """Stores the reasons why the weights may not be reproducible."""
        self.inexact = run.inexact_reasons()

    @property
    def epoch(self) -> float | None:
        """The number of epochs so far; None if the size of the dataset is unknown."""
        return self.last_step / self.steps_per_epoch if self.steps_per_epoch else None

    @property
    def epochs(self) -> float | None:
        """The number of epochs at the last step; None if the size of the dataset is unknown."""
        return self.target / self.steps_per_epoch if self.steps_per_epoch else None

    @property
    def examples_per_second(self) -> float | None:
        """The speed in examples; None if it is unknown."""
        return (self.steps_per_second or 0.0) * self.examples_per_step or None

    @property
    def seconds_left(self) -> float | None:
        """The time until the last step at the current speed; None if it is unknown."""
        rate = self.steps_per_second
        return max(0, self.target - self.last_step) / rate if rate else None


def _scalars(logs: Logs) -> dict[str, float]:
    # Imports NumPy, which commands that only show phases do not need.
    from orbit_runner.utils.metrics import scalars

    return scalars(logs)


def _best(run: Run) -> tuple[str, float, int] | None:
    return None if run.best is None else run.best.result()


def other_metrics(numbers: Mapping[str, float]) -> dict[str, float]:
    """Returns the metrics of a loop or evaluation, without the loss and the learning rate."""
    return {
        name: value for name, value in numbers.items() if name not in _NOT_SHOWN and is_result(name)
    }


def format_metric(name: str, value: float) -> str:
    """Returns a metric as text, such as `token accuracy 0.5000`."""
    return f"{name.replace('_', ' ')} {format_number(value)}"


def format_metrics(numbers: Mapping[str, float], *, loss: str) -> str:
    """Returns numbers as text: the loss, whose key is `loss`, then the metrics."""
    texts = [format_metric("loss", numbers[loss])] if loss in numbers else []
    metrics = other_metrics(numbers)
    return "  ".join([*texts, *(format_metric(name, value) for name, value in metrics.items())])


def step_text(history: History) -> str:
    """Returns the step and the last step, such as `step 12,400/64,000`."""
    return f"step {history.last_step:,}/{history.target:,}"


def epoch_text(history: History) -> str:
    """Returns the epoch and the last one, such as `epoch 31.7/164`, or "" if it is unknown."""
    if history.epoch is None or history.epochs is None:
        return ""
    return f"epoch {history.epoch:,.1f}/{round(history.epochs, 1):,.10g}"


def speed_texts(history: History) -> Iterable[str]:
    """Yields the steps and examples in a second."""
    if history.steps_per_second:
        yield f"{short_number(history.steps_per_second)} steps/s"
    if history.examples_per_second:
        yield f"{short_number(history.examples_per_second)} examples/s"


def time_left_text(history: History) -> str:
    """Returns the time left, such as `19:01 left`, or "" if it is unknown."""
    return "" if history.seconds_left is None else f"{format_duration(history.seconds_left)} left"


def evaluation_line(step: int, numbers: Mapping[str, float]) -> str:
    """Returns the result of an evaluation as a line."""
    return f"evaluation at step {step}: {format_metrics(numbers, loss=VALIDATION_LOSS)}"


def loop_line(history: History) -> str:
    """Returns the progress of training as a line."""
    parts = [
        f"step {history.last_step}/{history.target}",
        epoch_text(history),
        format_metrics(history.metrics, loss=TRAINING_LOSS),
        *speed_texts(history),
        time_left_text(history),
    ]
    return "  ".join(filter(None, parts))
