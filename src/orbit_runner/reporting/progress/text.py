"""Numbers, times and metrics as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from orbit_runner.reporting.numbers import format_duration, format_number, short_number
from orbit_runner.reporting.progress.history import History
from orbit_runner.run_directory.metric_records import is_result

TRAINING_LOSS, VALIDATION_LOSS = "training_loss", "validation_loss"
LEARNING_RATE = "learning_rate"
_NOT_SHOWN = (
    "steps_per_second",
    "validation_examples",
    "tflops_per_second",
    "mfu",
    LEARNING_RATE,
    TRAINING_LOSS,
    VALIDATION_LOSS,
)


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
    shown = [format_metric("loss", numbers[loss])] if loss in numbers else []
    metrics = other_metrics(numbers)
    return "  ".join([*shown, *(format_metric(name, value) for name, value in metrics.items())])


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
