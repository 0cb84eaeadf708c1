"""Training and evaluation under `parameter_server`, where any worker can run a piece of a loop."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from orbit_runner.config.schema.data import resolve_data_config
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.determinism.scopes import keyed_draws_scope
from orbit_runner.distribute.failure_detection import check_servers
from orbit_runner.state.train_state import TrainState
from orbit_runner.tasks.adapter import TaskAdapter
from orbit_runner.tf_internals import (
    PerWorkerDistributedIterator,  # the public API supports only one pipeline
    coordinator_workers,
    set_type_spec,
)
from orbit_runner.train.evaluator import as_scalar
from orbit_runner.train.inputs.batches import Batches, Trains
from orbit_runner.train.inputs.distribute import pipeline_builder
from orbit_runner.train.loops.loop_pieces import Loop

if TYPE_CHECKING:
    from orbit_runner.train.inputs.distribute import Build, DataSection
    from orbit_runner.train.loops.loop_pieces import BatchSource
    from orbit_runner.utils.types import Tensors


# Maps the iterator of a worker, if it has one, and the first step of a piece to a function from a
# step to its batch. That function must be called for one step after another.
Source = Callable[[Any, tf.Tensor], Callable[[tf.Tensor], Any]]

_POLL_SECONDS = 0.001
_PIECES_PER_WORKER = 8
_LEAST_STEPS = 10


class WorkerBatches(Batches):
    """The batches of workers that do not wait for each other, and the loop that trains with them.

    A worker receives a piece of the loop: its first step and the number of steps. If the task's
    input pipeline can start at any step, these determine the batches of the piece, whichever worker
    runs it. If a worker is lost, another runs its piece again. Some of its steps then run
    twice, so pieces do not count steps: the chief sets the global step, and the optimizer's, when
    all pieces have ended. Must be created in the strategy's scope.
    """

    def __init__(
        self,
        config: ExperimentConfig,
        adapter: TaskAdapter,
        state: TrainState,
        strategy: tf.distribute.ParameterServerStrategy,
    ) -> None:
        super().__init__(strategy, self._build_dataset)
        self._strategy = strategy
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        self._workers = len(coordinator_workers(self._coordinator))
        self._config = config
        self._adapter = adapter
        self._state = state

    @property
    def are_made_in_loop(self) -> bool:
        """Whether pieces make their own batches."""
        return self._adapter.starts_at_step

    def _build_dataset(self, start_step: int) -> Any:
        if self._adapter.starts_at_step:
            return ()
        build = pipeline_builder(self._adapter, self._data(), self._config.runtime, start_step)
        return WorkerDatasets(self._coordinator, build)

    def _data(self) -> DataSection:
        config = self._config
        recoveries = int(self._state.recoveries.numpy())
        return resolve_data_config(config.for_task.task.train_data, config.runtime, recoveries)

    def training_loop(self, trainer: Trains) -> Loop:
        """Returns the loop of a trainer, whose step takes no records and counts no steps."""
        state = self._state
        data = self._data()
        batch_at = self._adapter.batch_at(data)

        def source(iterator: Any, first: tf.Tensor) -> Callable[[tf.Tensor], Tensors]:
            if batch_at is not None:
                return batch_at
            if self._adapter.starts_at_step:
                build = pipeline_builder(self._adapter, data, self._config.runtime, first)
                iterator = iter(build(tf.distribute.InputContext()))
            return lambda step: next(iterator)

        piece = tf.function(functools.partial(self._run_piece, trainer, source))

        def loop(iterator: BatchSource, first: tf.Tensor, num_steps: tf.Tensor) -> None:
            start = int(first)
            steps = int(num_steps)
            updates = int(state.optimizer.iterations.numpy())
            trainer.metrics.loss.add(*self._run(piece, iterator, start, steps))
            state.optimizer.iterations.assign(updates + steps)
            state.global_step.assign(start + steps)

        return loop

    def _run(
        self, piece: Callable[..., tf.Tensor], iterator: BatchSource, first: int, steps: int
    ) -> tuple[tf.Tensor, float]:
        losses = []
        step = first
        for length in split_loop(steps, self._workers):
            span = tf.constant(step, tf.int64), tf.constant(length, tf.int64)
            losses.append(self._coordinator.schedule(piece, args=(iterator, *span)))
            step += length
        # TensorFlow itself would wait forever for a server that hangs.
        while not self._coordinator.done():
            check_servers(self._strategy)
            time.sleep(_POLL_SECONDS)
        return tf.add_n(self._coordinator.fetch(losses)), float(steps)

    def _run_piece(
        self,
        trainer: Trains,
        source: Source,
        iterator: BatchSource,
        first: tf.Tensor,
        length: tf.Tensor,
    ) -> tf.Tensor:
        """Runs `length` steps on one worker; returns the sum of their losses, float32 scalar."""
        unconverted = tf.autograph.experimental.do_not_convert
        batch = unconverted(unconverted(source)(iterator, first))

        def replica_step(inputs: Tensors, step: tf.Tensor) -> tf.Tensor:
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            with keyed_draws_scope(self._config.runtime.seed, step, replica):
                logs = trainer.step_fn(inputs)
            trainer.inspect_graph()
            return as_scalar(logs[self._adapter.task.loss])

        total = tf.zeros([])
        for step in tf.range(first, first + length):
            loss = self._strategy.run(replica_step, args=(batch(step), step))
            if self._state.ema is not None:
                self._state.ema.update(step + 1)
            total += tf.cast(loss, tf.float32)
        return total


class WorkerDatasets:
    """A shard of the examples for each worker, which the worker reads itself.

    A worker that is lost and restarted begins its shard again. TensorFlow's own per-worker datasets
    are the same on all workers, so with a seed, all would train on the same batches.
    """

    def __init__(
        self,
        coordinator: tf.distribute.coordinator.ClusterCoordinator,
        build: Build,  # returns the dataset of one worker
    ) -> None:
        self._workers = coordinator_workers(coordinator)
        self._functions = []
        for index in range(len(self._workers)):
            context = tf.distribute.InputContext(len(self._workers), index, 1)
            make = tf.function(functools.partial(build, context))
            self._functions.append(make.get_concrete_function())

    @property
    def element_spec(self) -> tf.TypeSpec:
        """The shapes and types of a batch."""
        return self._functions[0].structured_outputs.element_spec

    def __iter__(self) -> PerWorkerDistributedIterator:
        iterators = []
        for worker, function in zip(self._workers, self._functions, strict=True):
            # TensorFlow creates the iterator again if the worker is restarted.
            iterator = worker.create_resource(lambda function=function: iter(function()))
            set_type_spec(iterator, tf.data.IteratorSpec(self.element_spec))
            iterators.append(iterator)
        return PerWorkerDistributedIterator(tuple(iterators))


def copy_to_chief(
    task: TaskAdapter, state: TrainState, strategy: tf.distribute.Strategy
) -> tuple[TrainState, Callable[[], contextlib.AbstractContextManager[None]]]:
    """Returns a state with a model in this process, and a scope that fetches its weights.

    Each batch of an evaluation would fetch the weights over the network otherwise. If an average of
    them is kept, it is fetched instead of the weights. `strategy` is for this process alone.
    """
    with strategy.scope():
        model = task.build_model()

    @contextlib.contextmanager
    def fetched_weights_scope() -> Iterator[None]:
        averages = {} if state.ema is None else {id(w): average for w, average in state.ema.pairs()}
        for source, target in zip(state.model.variables, model.variables, strict=True):
            target.assign(averages.get(id(source), source).numpy())
        yield

    return dataclasses.replace(state, model=model, ema=None), fetched_weights_scope


def split_loop(steps: int, workers: int) -> list[int]:
    """Returns the lengths of the pieces of a loop.

    Workers that are faster run more of them. Few steps make few pieces, because each takes time to
    start.
    """
    most = max(workers, steps // _LEAST_STEPS)
    count = min(steps, workers * _PIECES_PER_WORKER, most)
    return [steps // count + (place < steps % count) for place in range(count)]
