"""Traces a range of training steps with TensorFlow's profiler.

The loop is cut into pieces before the first of these steps and after the last. The graphs are those
of all other steps, so the weights are the same.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import tensorflow as tf

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.determinism.numerics_record import available_cores
from orbit_runner.errors import first_line
from orbit_runner.profiling.trace_files import (
    FIRST,
    MARKER,
    STEPS,
    TraceDescription,
    newest_trace,
    write_description,
)
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.state.train_state import TrainState
from orbit_runner.tf_internals import inner_layers, is_keras_layer, optimizer_name
from orbit_runner.train.loops.stage import Loop, Stage
from orbit_runner.utils.log import note

if TYPE_CHECKING:
    from orbit_runner.train.loops.stage import BatchSource


_WAITING = "waiting"
_TRACING = "tracing"
_DONE = "done"


class StepProfiler(Stage):
    """Traces the steps from `first` to `last` once. A failure is a warning, never an error."""

    def __init__(
        self,
        first: int,
        last: int,
        directory: Path,  # TensorBoard's directory of the training
        describe: Callable[[], TraceDescription],
        read_step: Callable[[], int],  # returns the global step
    ) -> None:
        self._first = first
        self._last = last
        self._directory = directory
        self._describe = describe
        self._read_step = read_step
        self._state = _WAITING
        self._cpu_seconds = 0.0

    def piece_length(self, step: int, steps: int) -> int:
        """Returns how many of the next `steps` steps can run as one piece, from a global step."""
        if self._state == _TRACING or self._starts_after(step):
            return min(steps, self._last - step)
        if self._state == _WAITING and step < self._first:
            return min(steps, self._first - 1 - step)
        return steps

    def wrap_loop(self, loop: Loop, step: int) -> Loop:
        """Returns a loop that traces the piece, if it is in the range."""
        if self._starts_after(step):
            self._start()
        if self._state != _TRACING:
            return loop

        def run(iterator: BatchSource, first: tf.Tensor, steps: tf.Tensor) -> None:
            with self._marked_scope(step + 1, int(steps)):
                loop(iterator, first, steps)
                after = self._read_step()  # Waits for the steps on a GPU.
            if after >= self._last:
                self.stop()

        return run

    def stop(self) -> None:
        """Writes the trace, if steps are being traced."""
        if self._state != _TRACING:
            return
        self._state = _DONE
        try:
            tf.profiler.experimental.stop()
            trace = newest_trace(self._directory)
            if trace is not None:
                described = dataclasses.replace(self._describe(), cpu_seconds=self._cpu_seconds)
                write_description(trace, described)
        except Exception as error:
            _warn("the trace cannot be written", error)

    def _starts_after(self, step: int) -> bool:
        return self._state == _WAITING and step == self._first - 1

    def _start(self) -> None:
        try:
            tf.profiler.experimental.start(str(self._directory))
        except Exception as error:
            self._state = _DONE
            _warn("the profiler does not start", error)
        else:
            self._state = _TRACING

    @contextlib.contextmanager
    def _marked_scope(self, first: int, steps: int) -> Iterator[None]:
        start = time.process_time()
        with tf.profiler.experimental.Trace(MARKER) as marker:
            yield
            # Only here, so that a piece that an error ended does not count.
            marker.set_metadata(**{FIRST: first, STEPS: steps})
        self._cpu_seconds += time.process_time() - start


def build_step_profiler(
    config: ExperimentConfig, directory: RunDirectory, state: TrainState
) -> StepProfiler | None:
    """Returns the profiler of a run, or None if nothing is profiled."""
    if not config.trainer.profile_steps:
        return None
    first, last = config.trainer.profile_steps
    # TensorBoard looks for traces next to the events of the training.
    traces = directory.profiles.parents[1]
    return StepProfiler(
        first,
        last,
        traces,
        lambda: _describe_run(config, state),
        lambda: int(state.global_step.numpy()),
    )


@contextlib.contextmanager
def profile_scope(profiler: StepProfiler | None) -> Iterator[None]:
    """Writes the trace at the end of a `with` block, if the steps did not all run."""
    try:
        yield
    finally:
        if profiler is not None:
            profiler.stop()


def layer_paths(model: tf.Module) -> tuple[str, ...]:
    """Returns the names of the layers of a model, each with those of the layers around it."""
    return tuple(_paths(model, ""))


def _paths(layer: tf.Module, inside: str) -> Iterator[str]:
    # Models of several tasks are modules without layers.
    for sublayer in inner_layers(layer) if is_keras_layer(layer) else ():
        yield f"{inside}{sublayer.name}"
        yield from _paths(sublayer, f"{inside}{sublayer.name}/")


def _describe_run(config: ExperimentConfig, state: TrainState) -> TraceDescription:
    optimizer = state.optimizer
    model = state.model
    inner = [getattr(optimizer, name, None) for name in ("inner_optimizer", "optimizer")]
    every = (optimizer, *inner, *getattr(optimizer, "optimizers", ()))
    names = map(optimizer_name, every)
    return TraceDescription(
        experiment=config.name or "",
        model=getattr(model, "name", ""),
        layers=layer_paths(model),
        optimizers=tuple(dict.fromkeys(name for name in names if isinstance(name, str))),
        cores=available_cores(),
    )


def _warn(what: str, error: Exception) -> None:
    note(f"warning: trainer.profile_steps: {what}: {first_line(error)}")
