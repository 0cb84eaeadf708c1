"""Measures the speed of a few steps, and how long the whole run would take."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import tensorflow as tf

from orbit_runner.inspection.schedule import Schedule

_WARM_UP = 2
_SECONDS, _MOST_STEPS = 3.0, 500
_TIMED_BATCHES = 2


@dataclasses.dataclass(frozen=True)
class Measurement:
    """The measured times and memory of a few steps.

    Attributes:
        build_seconds: The time to build the task, the model and the optimizer.
        trace_seconds: The time of the first step, with tracing and the start of the input pipeline.
        steps: The number of steps that were timed.
        steps_per_second: Their speed.
        evaluation_seconds: The estimated time of an evaluation; None if it is unknown.
        run_seconds: The estimated time of the run, with evaluations; None without a schedule.
        peak_bytes: The measured peak of the memory in a step; None if it cannot be measured.
        device: The device of the peak.
        resident_bytes: The largest resident set of this process; None if unknown.
    """

    build_seconds: float
    trace_seconds: float
    steps: int
    steps_per_second: float
    evaluation_seconds: float | None
    run_seconds: float | None
    peak_bytes: int | None
    device: str
    resident_bytes: int | None


def training_speed(trainer: Any) -> tuple[float, int, float]:
    """Returns the seconds of the first step, and steps and seconds of those after it."""
    first = _train(trainer, 1)
    warm = _train(trainer, _WARM_UP) / _WARM_UP
    # Twice: the first loop of a new length may wait for the input pipeline.
    steps = max(1, min(_MOST_STEPS, int(_SECONDS / max(warm, 1e-6))))
    return first, steps, _train(trainer, steps)


def evaluation_seconds(evaluator: Any, batches: int) -> float | None:
    """Returns the estimated seconds of an evaluation of a number of batches; None if unknown."""
    if batches < 1:
        return None
    some = min(_TIMED_BATCHES, batches)
    evaluator.evaluate(tf.constant(some))  # traces
    start = time.perf_counter()
    evaluator.evaluate(tf.constant(some))
    return (time.perf_counter() - start) / some * batches


def run_seconds(schedule: Schedule, speed: float, first: float, evaluation: float | None) -> float:
    """Returns the estimated seconds of a run, without the time to save checkpoints."""
    return first + schedule.train_steps / speed + schedule.evaluations * (evaluation or 0.0)


def resident_peak() -> int | None:
    """Returns the largest resident set of this process in bytes, or None if unknown."""
    try:
        # Not `getrusage`, which under Linux includes the peak of the process that started this one.
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    except (OSError, IndexError):
        return _peak_of_getrusage()


def _peak_of_getrusage() -> int | None:
    try:
        import resource
    except ImportError:  # Windows has no such module.
        return None
    import sys

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _train(trainer: Any, steps: int) -> float:
    start = time.perf_counter()
    trainer.train(tf.constant(steps))
    return time.perf_counter() - start
