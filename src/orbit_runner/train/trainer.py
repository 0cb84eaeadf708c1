"""The inner loop of training, which runs many steps in one graph."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import orbit
import tensorflow as tf

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.determinism.gradient_patches import replaced_gradients_scope
from orbit_runner.determinism.scopes import unkeyed_draws
from orbit_runner.distribute.devices import peak_flops_of_gpus
from orbit_runner.distribute.process_group import graph_count
from orbit_runner.errors import SettingError
from orbit_runner.state.learning_rates import (
    LayerRateOptimizer,
    learning_rate_tensors,
    learning_rates,
)
from orbit_runner.state.train_state import TrainState
from orbit_runner.train.gradients import (
    StepFn,
    compiles_whole_steps,
    gradients_to_replace,
    skip_compilation_notice,
)
from orbit_runner.train.inputs.batches import Batches
from orbit_runner.train.inputs.distribute import Partition
from orbit_runner.train.loops.graph_loops import row_of
from orbit_runner.train.loops.loop_pieces import Loop, LoopLength, Stage
from orbit_runner.train.loops.recorder import MAX_RECORDS, Recorder
from orbit_runner.train.schedule import Plan
from orbit_runner.train.step_profiler import StepProfiler
from orbit_runner.train.steps import TrainStep
from orbit_runner.utils.flops import step_flops, throughput_logs
from orbit_runner.utils.garbage_collection import paused_collection_scope
from orbit_runner.utils.log import phase

if TYPE_CHECKING:
    from orbit_runner.train.loops.loop_pieces import BatchSource, Results
    from orbit_runner.utils.types import Tensors


class Trainer(orbit.AbstractTrainer):
    """Runs a training step on batches. Must be created in the strategy's scope.

    The batches are made in the first loop, after a checkpoint was restored, so that they start at
    the right step. Metrics are means over `summary_interval` steps, regardless of the length of
    loops.
    """

    def __init__(
        self,
        config: ExperimentConfig,
        state: TrainState,
        plan: Plan,
        strategy: tf.distribute.Strategy,
        step: TrainStep,
        batches: Batches,
        *,
        profiler: StepProfiler | None = None,
        records_in_graph: bool = False,  # whether loops may contain records if the metrics allow it
    ) -> None:
        # Both are made in the first loop.
        self._source: BatchSource | None = None  # what the loop gets its batches from
        self._loop: Loop | None = None  # runs steps in one graph
        self.state = state
        self._plan = plan
        self._strategy = strategy
        self._batches = batches
        self.compiles = compiles_whole_steps(config, strategy)
        self._uses_xla = config.uses_xla
        if self._uses_xla:
            skip_compilation_notice()
        self._replaced_gradients = gradients_to_replace(config, strategy)
        self._partition = Partition(config, strategy, is_training=True)
        self._build = step.build
        self._repeats = step.repeats
        self.metrics = step.metrics
        self.task = step.owner
        self.step_fn = self.build_step()
        self.timer = StepTimer()
        self.profiler = profiler
        self._accumulation = config.trainer.gradient_accumulation_steps
        self._peak = peak_flops_of_gpus(strategy, config.runtime.mixed_precision_dtype or "float32")
        # The random draws of a step that depend on more than (seed, step).
        self.unkeyed: list[str] = []
        # Floating-point operations of a step on all replicas of all workers; None if unknown.
        self.flops: int | None = None
        self._graphs = graph_count(strategy)
        self.recorder = self._build_recorder() if records_in_graph else None
        most_steps = config.trainer.steps_per_loop
        self.loop_length = LoopLength(
            plan,
            lambda: self.timer.last,
            most_steps=most_steps if isinstance(most_steps, int) else math.inf,
            most_records=1 if self.recorder is None else MAX_RECORDS,
            grace_period=config.runtime.grace_period,
        )
        self._stages = self._build_stages()
        # The step since which the metrics are updated, unless a record ended later.
        self._first_step: int | None = None

    @property
    def earlier_records(self) -> list[tuple[int, Results]]:
        """The records that ended within the last loop, before its end: global step and logs."""
        # Not an attribute, because `tf.Module` wraps each list that is assigned, which takes
        # milliseconds.
        return [] if self.recorder is None else self.recorder.records

    def _build_recorder(self) -> Recorder | None:
        """Returns the recorder, or None if not all metrics can be read inside a graph."""
        if not self.metrics.can_read_in_graph():
            return None
        optimizer = self.state.optimizer
        return Recorder(
            self._plan.summary_interval,
            self.metrics.all(),
            lambda: learning_rate_tensors(optimizer),
        )

    def _build_stages(self) -> tuple[Stage, ...]:
        """Returns what runs around each piece of a loop, in order.

        A piece ends at the last record in it, if any. Profiled steps and others are in different
        pieces.
        """
        stages = (self.recorder, self.profiler)
        return tuple(stage for stage in stages if stage is not None)

    def build_step(self) -> StepFn:
        """Returns a new step."""
        layers = self.state.trained_layers
        optimizer = self.state.optimizer
        if layers is not None and layers.factors:
            optimizer = LayerRateOptimizer(optimizer, layers.factors)
        return self._build(optimizer)

    def _make_loop(self) -> Loop:
        return self._batches.training_loop(self)

    def train(self, num_steps: tf.Tensor) -> Results:
        """Runs `num_steps` steps (int32 scalar).

        Returns `training_loss`, the task's metrics, `learning_rate` and `steps_per_second`. Raises
        SettingError if there are fewer batches.
        """
        start = time.perf_counter()
        step = self._global_step()
        if self._first_step is None:
            self._first_step = step
        is_traced = self._loop is not None
        try:
            with self._tracing_scope():
                self._begin_loop(step)
                source = self._start_batches(step)
                loop = self._loop = self._loop or self._make_loop()
                remaining = int(num_steps)
                while remaining:
                    remaining -= self._run_piece(loop, source, remaining)
                logs = self._end_loop()
        except tf.errors.OutOfRangeError as error:
            raise self._end_of_data_error() from error
        steps_taken = self._global_step() - step
        if steps_taken < int(num_steps):
            raise self._end_of_data_error()
        self.timer.add(steps_taken, time.perf_counter() - start)
        if not is_traced:
            phase("training", minor=True)
        for values in (*(record for _, record in self.earlier_records), logs):
            speed = values["steps_per_second"] = self.timer.steps_per_second()
            if self.flops:
                values.update(throughput_logs(self.flops * speed, self._peak))
        return logs

    def _tracing_scope(self) -> contextlib.AbstractContextManager[None]:
        # A loop that Python runs step by step creates garbage that must be collected.
        if self._loop is not None or tf.config.functions_run_eagerly():
            return contextlib.nullcontext()
        return paused_collection_scope()

    def _begin_loop(self, step: int) -> None:
        """Resets the metrics and the timer if a record has ended at the global step."""
        if self.recorder is not None:
            self.recorder.records.clear()
        if self._plan.starts_average(step) and (
            self.recorder is None or not self.recorder.is_record_end(step)
        ):
            self.metrics.reset()
        if self._plan.is_record(step):
            self.timer.reset()

    def _start_batches(self, step: int) -> BatchSource:
        if self._source is None:
            self._source = self._batches.start(step)
            if self._batches.are_made_in_loop:
                self._loop = None
        return self._source

    def _run_piece(self, loop: Loop, source: BatchSource, steps: int) -> int:
        """Runs the next piece of a loop that has so many steps left, and returns its length."""
        first = self._global_step()
        for stage in self._stages:
            steps = stage.piece_length(first, steps)
        for stage in self._stages:
            loop = stage.wrap_loop(loop, first)
        loop(source, self.state.global_step.read_value(), tf.constant(steps, tf.int64))
        last = self._global_step()  # Waits for the steps.
        for stage in self._stages:
            stage.end_piece(last)
        return steps

    def _end_loop(self) -> Results:
        """Returns the metrics and learning rates by name."""
        if self.recorder is not None:
            last = self.recorder.last_record(self._global_step())
            if last is not None:
                return last
        return {**self.metrics.logs(), **learning_rates(self.state.optimizer)}

    def _global_step(self) -> int:
        return int(self.state.global_step.numpy())

    def _end_of_data_error(self) -> SettingError:
        step = self._global_step()
        return SettingError(
            "task.train_data", f"has no more batches after step {step}", code="empty-data"
        )

    def next_batch(self) -> Tensors:
        """Returns the distributed batch of the next step, from a dataset of its own.

        Raises SettingError if there are no more batches.
        """
        batch = self._batches.first(self._global_step())
        if batch is None:
            raise self._end_of_data_error()
        return batch

    def rewind(self) -> None:
        """Makes the next loop start at the global step, which was set back.

        The examples then have another order, if it depends on the number of recoveries.
        """
        self.seek()
        self._discard_batches()

    def seek(self) -> None:
        """Makes the next loop start at the global step, with the examples in the same order."""
        if self.profiler is not None:
            self.profiler.stop()
        if not self._batches.are_made_in_loop:
            self._discard_batches()
        self.metrics.reset()
        self._first_step = None

    def _discard_batches(self) -> None:
        self._batches.discard()
        self._source = None

    def metric_values(self) -> list[list[Any]]:
        """Returns the values of the variables of the metrics, on each local replica, as lists."""
        variables = self.metrics.replica_variables(self._strategy)
        return [[part.numpy().tolist() for part in parts] for parts in variables]

    def restore_metrics(self, values: list[list[Any]]) -> None:
        """Restores what `metric_values` returned, so that the next record is complete."""
        variables = self.metrics.replica_variables(self._strategy)
        for parts, numbers in zip(variables, values, strict=True):
            for part, number in zip(parts, numbers, strict=True):
                part.assign(tf.constant(number, part.dtype))
        self._first_step = self._plan.record_start(self._global_step() + 1)

    def missing_steps(self, step: int) -> int:
        """Returns how many steps the record that ends at `step` lacks, because of a resume."""
        start = self._plan.record_start(step)
        return max(0, (self._first_step or 0) - start)

    def train_step(self, iterator: Any) -> None:
        """Runs one step on all replicas, on a batch of an iterator over the distributed dataset."""
        self._batches.take(self.run_step, iterator)

    def run_step(self, *inputs: Tensors) -> None:
        """Runs one step on all replicas.

        `inputs` are a distributed batch, or several of them and the row of the batch to use.
        """
        self.run_on_replicas(self.replica_step, *inputs)

    def run_on_replicas(self, function: Callable[..., Any], *inputs: Tensors) -> Any:
        """Runs a function that takes a step on each replica, and returns what it returns."""
        outputs = self._strategy.run(function, args=inputs, options=self._partition.options)
        if self.state.ema is not None:
            self.state.ema.update(self.state.global_step.read_value())
        return outputs

    def replica_step(self, inputs: Tensors, row: tf.Tensor | None = None) -> None:
        """Runs one step on a replica."""
        batch = self._partition.split_inputs(inputs if row is None else row_of(inputs, row))
        with replaced_gradients_scope(self._replaced_gradients):
            self.step_fn(batch)
        self.state.global_step.assign_add(1)
        self.inspect_graph()

    @tf.autograph.experimental.do_not_convert
    def inspect_graph(self) -> None:
        """Finds what the graph of a step draws and computes. Called at the end of the step."""
        if not tf.executing_eagerly():
            graph = tf.compat.v1.get_default_graph()
            # Several graphs only if each step trains one of several tasks.
            self.unkeyed = list(dict.fromkeys([*self.unkeyed, *unkeyed_draws(graph)]))
            # With mirrored replicas, the last to be traced finds the ops of all.
            flops = step_flops(graph, self._accumulation)
            self.flops = None
            if flops is not None and self._repeats is not None:
                self.flops = flops * self._graphs * self._repeats
            if self._uses_xla:
                phase("compiling the first step with XLA", minor=True)


class StepTimer:
    """Measures steps per second inside loops; the time between loops does not count."""

    def __init__(self) -> None:
        self.last = 0, 0.0  # steps and seconds of the last loop
        self.reset()

    def reset(self) -> None:
        """Resets the mean."""
        self._steps = 0
        self._seconds = 0.0

    def add(self, steps: int, seconds: float) -> None:
        """Adds a loop."""
        self.last = steps, seconds
        self._steps += steps
        self._seconds += seconds

    def steps_per_second(self) -> float:
        """Returns the mean over the loops since the last reset."""
        return self._steps / self._seconds if self._seconds else 0.0
