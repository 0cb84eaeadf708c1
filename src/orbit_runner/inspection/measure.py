"""Sizes of what a step needs, its measured memory and speed, and the time of the whole run."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tensorflow as tf

from orbit_runner.inspection.batches import batch_bytes
from orbit_runner.inspection.schedule import Schedule
from orbit_runner.inspection.step_graph import StepGraph
from orbit_runner.state.train_state import TrainState

_WARM_UP = 2
_SECONDS, _MOST_STEPS = 3.0, 500
_TIMED_BATCHES = 2
_FEWEST_PEAKS, _MOST_PEAKS, _PEAK_SECONDS = 5, 25, 5.0


@dataclasses.dataclass(frozen=True)
class StepSizes:
    """Bytes of what a training step of a replica reads and changes, without activations.

    Attributes:
        weights: The weights.
        optimizer: The variables of the optimizer.
        average: The average of the weights, if there is one.
        gradients: All gradients together. Not all of them need exist at the same time.
        inputs: The batch; None if there is none.
    """

    weights: int
    optimizer: int
    average: int
    gradients: int
    inputs: int | None


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
        peak_bytes: The peak of the memory of a step, as `step_peak` measures it; None if unknown.
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


def step_sizes(state: TrainState, batch: Any, step: StepGraph | None) -> StepSizes:
    """Returns the sizes for a step on a batch; both are None if there are no data."""
    dense = variable_bytes(state.model.trainable_weights)
    return StepSizes(
        weights=variable_bytes(state.model.weights),
        optimizer=variable_bytes(state.optimizer_variables()),
        average=variable_bytes(state.ema.averages if state.ema is not None else ()),
        gradients=dense if step is None else sum(one.size for one in step.gradients),
        inputs=None if batch is None else batch_bytes(batch),
    )


def variable_bytes(variables: Iterable[Any]) -> int:
    """Returns the bytes of variables, each counted once."""
    distinct = {id(one): one for one in variables}.values()
    return sum(one.shape.num_elements() * one.dtype.size for one in distinct)


def step_peak(state: TrainState, batch: Any, step: StepGraph) -> tuple[int | None, str]:
    """Runs a step several times. Returns the peak of its memory in bytes, and the device.

    The peak is the sizes of the variables and the batch, and the most that a step adds to them, as
    TensorFlow's allocator counts it: the median of several steps. The allocator's total would
    contain the data in memory as well. The peak is None if the allocator does not count: that of a
    CPU does so only if the process was started with `TF_CPU_ALLOCATOR_USE_BFC=true`.
    """
    device = "GPU:0" if tf.config.list_logical_devices("GPU") else "CPU:0"
    try:
        tf.config.experimental.get_memory_info(device)
    except (ValueError, RuntimeError):
        return None, device
    with tf.device(device):  # A step would copy a batch that is elsewhere, and count it again.
        batch = tf.nest.map_structure(tf.identity, batch, expand_composites=True)
    before = tf.config.experimental.get_memory_info(device)["current"]
    for _ in range(_WARM_UP):
        step.run(batch)
    added: list[int] = []
    end = time.perf_counter() + _PEAK_SECONDS
    while len(added) < _FEWEST_PEAKS or (len(added) < _MOST_PEAKS and time.perf_counter() < end):
        tf.config.experimental.reset_memory_stats(device)
        # When it returns, the host has launched all kernels of a GPU, and allocated their memory.
        step.run(batch)
        added.append(tf.config.experimental.get_memory_info(device)["peak"] - before)
    sizes = step_sizes(state, batch, step)
    held = sizes.weights + sizes.optimizer + sizes.average + batch_bytes(batch)
    return held + int(statistics.median(added)), device


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
