"""The inner loop of training, which runs many steps in one graph."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orbit
import tensorflow as tf

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.runtime import LOGICAL_REPLICAS
from orbit_runner.data.step_batches import Chunks
from orbit_runner.determinism.gradient_patches import replaced_gradients_scope
from orbit_runner.determinism.scopes import keyed_draws_scope, unkeyed_draws
from orbit_runner.distribute.devices import peak_flops_of_gpus
from orbit_runner.distribute.process_group import graph_count
from orbit_runner.errors import SettingError
from orbit_runner.state.learning_rates import (
    LayerRateOptimizer,
    learning_rate_tensors,
    learning_rates,
)
from orbit_runner.state.train_state import TrainState
from orbit_runner.state.trained_layers import TrainedLayers
from orbit_runner.tasks.metrics import Ratio, RunningMean
from orbit_runner.train.evaluator import all_metrics, as_scalar, reset_metric, value_of
from orbit_runner.train.gradients import (
    StepFn,
    compiles_whole_steps,
    gradients_to_replace,
    skip_compilation_notice,
    split_step,
)
from orbit_runner.train.inputs.distribute import Partition
from orbit_runner.train.loops.chunked_loop import chunked_loop, row_of
from orbit_runner.train.loops.iterator_loops import training_loop
from orbit_runner.train.loops.loop_pieces import Loop, LoopPieces, Stage
from orbit_runner.train.loops.recorder import Recorder
from orbit_runner.train.schedule import Plan
from orbit_runner.train.step_profiler import StepProfiler
from orbit_runner.train.watch import Watch
from orbit_runner.utils.autograph import convert
from orbit_runner.utils.flops import step_flops, throughput_logs
from orbit_runner.utils.garbage_collection import paused_collection_scope
from orbit_runner.utils.log import phase

if TYPE_CHECKING:
    from orbit_runner.state.learning_rates import AppliesGradients
    from orbit_runner.train.inputs.distribute import Dataset
    from orbit_runner.train.loops.loop_pieces import BatchSource, Results
    from orbit_runner.utils.types import Tensors


DatasetFn = Callable[[int], Any]


@dataclasses.dataclass(frozen=True)
class LoopParts:
    """What a run adds to the loops of its trainer."""

    pieces: LoopPieces = dataclasses.field(default_factory=LoopPieces)
    profiler: StepProfiler | None = None
    records_in_graph: bool = False  # whether loops may contain records, if all metrics support that


class Trainer(orbit.AbstractTrainer):
    """Runs a task's training step. Must be created in the strategy's scope.

    The dataset is created in the first loop, after a checkpoint was restored, so that it starts at
    the right step. Metrics are means over `summary_interval` steps, regardless of the length of
    loops.
    """

    def __init__(
        self,
        config: ExperimentConfig,
        task: Any,
        state: TrainState,
        plan: Plan,
        strategy: tf.distribute.Strategy,
        # Returns the distributed dataset that starts at a given step.
        make_dataset: DatasetFn,
        # Returns the batches by their steps, or None if a dataset is needed.
        make_chunks: Callable[[], Chunks | None] = lambda: None,
        loop: LoopParts | None = None,
    ) -> None:
        self.train_dataset: Dataset | Mapping[str, Dataset] | tuple[()] | None = None
        self._iterator: BatchSource | None = None
        self._loop: Loop | None = None  # runs steps in one graph; made in the first loop
        self.state = state
        self._plan = plan
        self._strategy = strategy
        self._task = task
        self._make_dataset = make_dataset
        self._make_chunks = make_chunks
        self._chunks: Chunks | None = None
        self._compiles = compiles_whole_steps(config, strategy)
        self._uses_xla = config.uses_xla
        if self._uses_xla:
            skip_compilation_notice()
        self._replaced_gradients = gradients_to_replace(config, strategy)
        self._loss = RunningMean("training_loss")
        self._metrics = self._build_metrics()
        self._partition = Partition(config, strategy, is_training=True)
        self._watch = self._make_watch(config)
        self._make_step = functools.partial(self._step_fn, config)
        self._step = self._make_step()
        # Runs a step on a batch, and is compiled if whole steps are.
        self._take: Callable[[Tensors], None] = self._run_step
        self._seed = config.runtime.seed
        loop = loop or LoopParts()
        self.timer = StepTimer()
        self.pieces = loop.pieces
        self.profiler = loop.profiler
        self._pieces = config.trainer.gradient_accumulation_steps
        self._peak = peak_flops_of_gpus(strategy, config.runtime.mixed_precision_dtype or "float32")
        # The random draws of a step that depend on more than (seed, step).
        self.unkeyed: list[str] = []
        # Floating-point operations of a step on all replicas of all workers; None if unknown.
        self.flops: int | None = None
        self._graphs = graph_count(strategy)
        self._recorder = self._build_recorder() if loop.records_in_graph else None
        self._stages = self._build_stages()
        # The step since which the metrics are updated, unless a record ended later.
        self._first_step: int | None = None

    @property
    def earlier_records(self) -> list[tuple[int, Results]]:
        """The records that ended within the last loop, before its end: global step and logs."""
        # Not an attribute, because `tf.Module` wraps each list that is assigned, which takes
        # milliseconds.
        return [] if self._recorder is None else self._recorder.records

    @property
    def records_in_graph(self) -> bool:
        """Whether a loop may contain records. Otherwise, loops must end where records end."""
        return self._recorder is not None

    def _build_recorder(self) -> Recorder | None:
        """Returns the recorder, or None if not all metrics can be read inside a graph."""
        metrics = self._all_metrics()
        # Reading other metrics may have side effects.
        if not all(map(_can_read_in_graph, metrics)):
            return None
        interval = self._plan.summary_interval
        optimizer = self.state.optimizer
        return Recorder(interval, metrics, lambda: learning_rate_tensors(optimizer), self._watch)

    def _build_stages(self) -> tuple[Stage, ...]:
        """Returns what runs around each piece of a loop, in order.

        A piece ends where other layers are trained, and at the last record in it, if any. A
        measured step is a piece of its own. Profiled steps and others are in different pieces.
        """
        layers = self.state.trained_layers
        stages = (
            None if layers is None else _LayerChanges(layers, self._new_loop),
            self._recorder,
            self._watch,
            self.profiler,
        )
        return tuple(stage for stage in stages if stage is not None)

    def _build_metrics(self) -> Any:
        return all_metrics(self._task, self.state.model, training=True)

    def _make_watch(self, config: ExperimentConfig) -> Watch | None:
        return self._watch_of(config, self._strategy.num_replicas_in_sync)

    def _watch_of(self, config: ExperimentConfig, replicas: int) -> Watch | None:
        interval = config.trainer.watch_interval
        weights = self.state.model.trainable_variables
        return Watch(interval, weights, replicas, self.loop_fn) if interval else None

    def _wrap_optimizer(self) -> AppliesGradients:
        layers = self.state.trained_layers
        optimizer = self.state.optimizer
        if self._watch is not None:
            optimizer = self._watch.wrap_optimizer(optimizer)
        if layers is not None and layers.factors:
            optimizer = LayerRateOptimizer(optimizer, layers.factors)
        return optimizer

    def _build_task_step(self, optimizer: AppliesGradients) -> Callable[..., dict[str, tf.Tensor]]:
        model = self.state.model

        def train_step(
            inputs: Tensors, optimizer: AppliesGradients = optimizer
        ) -> dict[str, tf.Tensor]:
            return self._task.train_step(
                inputs, model=model, optimizer=optimizer, metrics=self._metrics
            )

        return train_step

    def _step_fn(self, config: ExperimentConfig) -> StepFn:
        pieces = config.trainer.gradient_accumulation_steps
        jit_compile = config.uses_xla
        optimizer = self._wrap_optimizer()
        train_step = self._build_task_step(optimizer)
        if getattr(self._task, "applies_gradients_itself", False):
            self._reject_split_steps(config)
            return train_step
        if pieces == 1 and not jit_compile:
            return train_step
        return split_step(
            self._convert(train_step),
            optimizer,
            pieces=pieces,
            jit_compile=jit_compile,
            loss=self._task.loss,
        )

    def _reject_split_steps(self, config: ExperimentConfig) -> None:
        """Raises SettingError for settings that need the gradients of a step."""
        trainer = config.trainer
        problems = {
            "trainer.gradient_accumulation_steps": trainer.gradient_accumulation_steps > 1,
            "trainer.watch_interval": trainer.watch_interval > 0,
            LOGICAL_REPLICAS: bool(config.runtime.logical_replicas),
            "runtime.enable_xla": config.uses_xla and not self._compiles,
        }
        for path, is_set in problems.items():
            if is_set:
                raise SettingError(
                    path,
                    "is not supported for a model with a train_step of its own, which applies its "
                    "gradients itself\nremove it",
                    code="not-supported",
                )

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
                self.train_loop_begin()
                loop = self._loop = self._loop or self.loop_fn()
                if self._iterator is None:
                    self._iterator = tf.nest.map_structure(iter, self.train_dataset)
                for length in self.pieces.lengths(int(num_steps), self._piece_length):
                    piece = loop
                    first = self._global_step()
                    for stage in self._stages:
                        piece = stage.wrap_loop(piece, first)
                    steps = tf.constant(length, tf.int64)
                    piece(self._iterator, self.state.global_step.read_value(), steps)
                    last = self._global_step()  # Waits for the steps.
                    for stage in self._stages:
                        stage.end_piece(last)
                logs = self.train_loop_end()
        except tf.errors.OutOfRangeError as error:
            raise self._end_of_data_error() from error
        taken = self._global_step() - step
        if taken < int(num_steps) and not self.pieces.stopped:
            raise self._end_of_data_error()
        self.timer.add(taken, time.perf_counter() - start)
        if not is_traced:
            phase("training", minor=True)
        for values in (*(record for _, record in self.earlier_records), logs):
            self._add_speed(values)
        return logs

    def _add_speed(self, logs: Results) -> None:
        speed = logs["steps_per_second"] = self.timer.steps_per_second()
        if self.flops:
            logs.update(throughput_logs(self.flops * speed, self._peak))

    def _tracing_scope(self) -> contextlib.AbstractContextManager[None]:
        # A loop that Python runs step by step creates garbage that must be collected.
        if self._loop is not None or tf.config.functions_run_eagerly():
            return contextlib.nullcontext()
        return paused_collection_scope()

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
        batch = next(iter(self._make_dataset(self._global_step())), None)
        if batch is None:
            raise self._end_of_data_error()
        return batch

    def rewind(self) -> None:
        """Makes the next loop start at the global step, which was set back."""
        self.seek()
        self._discard_dataset()

    def seek(self) -> None:
        """Makes the next loop start at the global step, with the examples in the same order."""
        if self.profiler is not None:
            self.profiler.stop()
        if self._chunks is None:
            self._discard_dataset()
        self.reset_metrics()
        self._first_step = None

    def _discard_dataset(self) -> None:
        self.train_dataset = self._iterator = None

    def metric_values(self) -> list[list[Any]]:
        """Returns the values of the variables of the metrics, on each local replica, as lists."""
        return [[part.numpy().tolist() for part in parts] for parts in self._metric_variables()]

    def restore_metrics(self, values: list[list[Any]]) -> None:
        """Restores what `metric_values` returned, so that the next record is complete."""
        for parts, numbers in zip(self._metric_variables(), values, strict=True):
            for part, number in zip(parts, numbers, strict=True):
                part.assign(tf.constant(number, part.dtype))
        self._first_step = self._plan.record_start(self._global_step() + 1)

    def _metric_variables(self) -> list[tuple[tf.Variable, ...]]:
        variables = [v for metric in self._all_metrics() for v in _variables_of(metric)]
        # Those of Keras 3 have the variable of TensorFlow as an attribute.
        plain = [v.value if not callable(v.value) else v for v in variables]
        return [self._strategy.experimental_local_results(variable) for variable in plain]

    def missing_steps(self, step: int) -> int:
        """Returns how many steps the record that ends at `step` lacks, because of a resume."""
        start = self._plan.record_start(step)
        return max(0, (self._first_step or 0) - start)

    def train_loop_begin(self) -> None:
        """Creates the dataset if there is none yet, and resets the metrics after a record."""
        if self._recorder is not None:
            self._recorder.records.clear()
        step = self._global_step()
        if self._plan.starts_average(step) and (
            self._recorder is None or not self._recorder.is_record_end(step)
        ):
            self.reset_metrics()
        if self._plan.is_record(step):
            self.timer.reset()
        if self.train_dataset is None:
            self._chunks = self._make_chunks()
            self.train_dataset = self._build_dataset()

    def _build_dataset(self) -> Dataset | Mapping[str, Dataset] | tuple[()]:
        if self._chunks is None:
            return self._make_dataset(self._global_step())
        self._loop = None
        return ()

    def _new_loop(self) -> Loop:
        """Returns a loop that is traced with the layers that are trainable now."""
        self._step = self._make_step()
        return self.loop_fn()

    def _piece_length(self, steps: int) -> int:
        step = self._global_step()
        for stage in self._stages:
            steps = stage.piece_length(step, steps)
        return steps

    def loop_fn(self) -> Loop:
        """Returns the function that runs a number of steps as one piece."""
        if self._chunks is not None:
            return chunked_loop(
                self._chunks,
                self._strategy,
                self._convert(self._run_step),
                recorder=self._recorder,
                jit_compile=self._compiles,
            )
        self._take = self._compile_take()
        return training_loop(self._convert(self.train_step), self._recorder)

    def _compile_take(self) -> Callable[[Tensors], None]:
        """Returns the function that runs a step on a distributed batch, compiled if XLA is used."""
        if not self._compiles:
            return self._run_step
        take = self._convert(self._run_step)
        return tf.function(take, autograph=False, jit_compile=True)

    def _convert(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return convert(function, self._task)

    def train_step(self, iterator: Any) -> None:
        """Runs one step on all replicas, on a batch of an iterator over the distributed dataset."""
        self._take(next(iterator))

    def _run_step(self, *inputs: Tensors) -> None:
        """Runs one step on all replicas.

        `inputs` are a distributed batch, or several of them and the row of the batch to use.
        """
        self._strategy.run(self._replica_step, args=inputs, options=self._partition.options)
        self._update_average()

    def _update_average(self) -> None:
        if self.state.ema is not None:
            self.state.ema.update(self.state.global_step.read_value())

    def _replica_step(self, inputs: Tensors, row: tf.Tensor | None = None) -> None:
        batch = inputs if row is None else row_of(inputs, row)
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        with keyed_draws_scope(self._seed, self.state.global_step, replica):
            batch = self._partition.split_inputs(batch)
            with replaced_gradients_scope(self._replaced_gradients):
                logs = self._traced_step()(batch)
        layers = self.state.trained_layers
        self.state.replica_state.average_across_replicas(
            layers.frozen if layers is not None else ()
        )
        self._record(logs)
        self.state.global_step.assign_add(1)
        self._inspect_graph()

    def _traced_step(self) -> StepFn:
        """Returns the function of a batch that is to be traced: one that measures, if needed."""
        if self._watch is None or not self._watch.is_measuring:
            return self._step
        return functools.partial(self._watch.run_measured_step, self._step)

    def _record(self, logs: dict[str, tf.Tensor]) -> None:
        self._loss.update_state(as_scalar(logs[self._task.loss]))

    @tf.autograph.experimental.do_not_convert
    def _inspect_graph(self) -> None:
        if not tf.executing_eagerly():
            graph = tf.compat.v1.get_default_graph()
            self.unkeyed = unkeyed_draws(graph)
            # With mirrored replicas, the last to be traced finds the ops of all.
            flops = step_flops(graph, self._pieces)
            self.flops = None if flops is None else flops * self._graphs
            if self._uses_xla:
                phase("compiling the first step with XLA", minor=True)

    def train_loop_end(self) -> Results:
        """Returns the metrics and learning rates by name."""
        if self._recorder is not None:
            last = self._recorder.last_record(self._global_step())
            if last is not None:
                return last
        logs = {metric.name: value_of(metric) for metric in self._all_metrics()}
        measured = {} if self._watch is None else self._watch.logs(self._global_step())
        return {**logs, **learning_rates(self.state.optimizer), **measured}

    def reset_metrics(self) -> None:
        """Begins new averages of the loss and the metrics."""
        for metric in self._all_metrics():
            reset_metric(metric)

    def _all_metrics(self) -> list[Any]:
        return [self._loss, *self._metrics]


def _can_read_in_graph(metric: Any) -> bool:
    """Returns whether reading a metric in a graph has no side effects."""
    return type(metric).result is Ratio.result or getattr(metric, "reads_in_graph", False)


def _variables_of(metric: Any) -> Sequence[Any]:
    variables: Sequence[Any] = getattr(metric, "all_variables", getattr(metric, "variables", ()))
    return variables


class _LayerChanges(Stage):
    """Makes a loop that is traced again whenever other layers are trained."""

    def __init__(self, layers: TrainedLayers, make_loop: Callable[[], Loop]) -> None:
        self._layers = layers
        self._make_loop = make_loop
        # The loop that was traced first, how often the layers had changed, and the loop for these.
        self._made: tuple[Loop, int, Loop] | None = None

    def piece_length(self, step: int, steps: int) -> int:
        """Returns how many of the next `steps` steps train the same layers."""
        return self._layers.steps_left(step, steps)

    def wrap_loop(self, loop: Loop, step: int) -> Loop:
        """Returns the loop for the layers that are trained now."""
        changes = self._layers.stage(step)
        if self._made is None or self._made[:2] != (loop, changes):
            self._layers.set_trainable_layers(step)
            self._made = loop, changes, self._make_loop()
        return self._made[2]


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
