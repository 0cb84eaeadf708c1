"""Training and evaluation under `parameter_server`, where any worker can run a piece of a loop."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from orbit_runner.config.schema.data import resolve_data_config
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.determinism.scopes import keyed_draws_scope
from orbit_runner.distribute.parameter_servers import check_servers
from orbit_runner.state.train_state import TrainState
from orbit_runner.tasks.adapter import TaskAdapter, adapt
from orbit_runner.tf_internals import (
    PerWorkerDistributedIterator,  # the public API supports only one pipeline
    coordinator_workers,
    set_type_spec,
)
from orbit_runner.train.evaluator import Evaluator, as_scalar
from orbit_runner.train.inputs.distribute import pipeline_builder
from orbit_runner.train.loops.loop_pieces import Loop
from orbit_runner.train.schedule import Plan
from orbit_runner.train.trainer import LoopParts, Trainer

if TYPE_CHECKING:
    from official.core import base_task

    from orbit_runner.train.inputs.distribute import Build, DataSection, Dataset
    from orbit_runner.train.loops.loop_pieces import BatchSource, Results
    from orbit_runner.utils.types import Tensors


# Maps the iterator of a worker, if it has one, and the first step of a piece to a function from a
# step to its batch. That function must be called for one step after another.
Source = Callable[[Any, tf.Tensor], Callable[[tf.Tensor], Any]]

_POLL_SECONDS = 0.001
_PIECES_PER_WORKER = 8
_LEAST_STEPS = 10


class AsyncTrainer(Trainer):
    """Runs a task's training step on workers that do not wait for each other.

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
        plan: Plan,
        strategy: tf.distribute.ParameterServerStrategy,
        loop: LoopParts,
    ) -> None:
        super().__init__(config, adapter.task, state, plan, strategy, self._dataset, loop=loop)
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        self._workers = len(coordinator_workers(self._coordinator))
        self._config = config
        self._adapter = adapter

    def _build_recorder(self) -> None:
        """Returns None: the workers share a loop, so none of them knows when a record ends."""

    def rewind(self) -> None:
        """Makes the next loop start at the global step, which was set back.

        The examples then have another order, if it depends on the seed.
        """
        super().rewind()
        self._loop = None

    def loop_fn(self) -> Loop:
        """Returns the function that runs a number of steps."""
        data = self._data()
        batch_at = self._adapter.batch_at(data)

        def source(iterator: Any, first: tf.Tensor) -> Callable[[tf.Tensor], Tensors]:
            if batch_at is not None:
                return batch_at
            if self._adapter.starts_at_step:
                build = pipeline_builder(self._adapter, data, self._config.runtime, first)
                iterator = iter(build(tf.distribute.InputContext()))
            return lambda step: next(iterator)

        piece = tf.function(functools.partial(self._run_piece, source))

        def loop(iterator: BatchSource, first: tf.Tensor, num_steps: tf.Tensor) -> None:
            start = int(first)
            steps = int(num_steps)
            updates = int(self.state.optimizer.iterations.numpy())
            self._loss.add(*self._run(piece, iterator, start, steps))
            self.state.optimizer.iterations.assign(updates + steps)
            self.state.global_step.assign(start + steps)

        return loop

    def _data(self) -> DataSection:
        config = self._config
        recoveries = int(self.state.recoveries.numpy())
        return resolve_data_config(config.for_task.task.train_data, config.runtime, recoveries)

    def _dataset(self, start_step: int) -> Any:
        if self._adapter.starts_at_step:
            return ()  # Pieces make their own batches.
        build = pipeline_builder(self._adapter, self._data(), self._config.runtime, start_step)
        return WorkerDatasets(self._coordinator, build)

    def _run(
        self, piece: Callable[..., tf.Tensor], iterator: BatchSource, first: int, steps: int
    ) -> tuple[tf.Tensor, float]:
        losses = []
        step = first
        for length in split_loop(steps, self._workers):
            span = tf.constant(step, tf.int64), tf.constant(length, tf.int64)
            losses.append(self._coordinator.schedule(piece, args=(iterator, *span)))
            step += length
        self._join()
        return tf.add_n(self._coordinator.fetch(losses)), float(steps)

    def _join(self) -> None:
        """Waits for all pieces. TensorFlow itself would wait forever for a server that hangs."""
        while not self._coordinator.done():
            check_servers(self._strategy)
            time.sleep(_POLL_SECONDS)

    def _run_piece(
        self, source: Source, iterator: BatchSource, first: tf.Tensor, length: tf.Tensor
    ) -> tf.Tensor:
        """Runs `length` steps on one worker; returns the sum of their losses, float32 scalar."""
        unconverted = tf.autograph.experimental.do_not_convert
        batch = unconverted(unconverted(source)(iterator, first))
        total = tf.zeros([])
        for step in tf.range(first, first + length):
            loss = self._strategy.run(self._replica_piece, args=(batch(step), step))
            if self.state.ema is not None:
                self.state.ema.update(step + 1)
            total += tf.cast(loss, tf.float32)
        return total

    def _replica_piece(self, inputs: Tensors, step: tf.Tensor) -> tf.Tensor:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        with keyed_draws_scope(self._seed, step, replica):
            logs = self._step(inputs)
        self._inspect_graph()
        return as_scalar(logs[self._task.loss])


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


class ChiefEvaluator(Evaluator):
    """Fetches the weights once per evaluation, and then evaluates in this process.

    Otherwise, each batch would fetch them over the network. If an average of the weights is kept,
    it is fetched instead of the weights, which do not change on the servers. Must be created
    outside of the scope of the run's strategy.
    """

    def __init__(
        self,
        task: base_task.Task,
        state: TrainState,
        strategy: tf.distribute.Strategy,  # for this process alone
        make_dataset: Callable[[], Dataset],
        **settings: Any,  # passed to `Evaluator`
    ) -> None:
        with strategy.scope():
            model = adapt(task).build_model()
            copy = dataclasses.replace(state, model=model, ema=None)
            super().__init__(task, copy, strategy, make_dataset, **settings)
        self._remote = state

    def evaluate(self, num_steps: tf.Tensor) -> Results:
        """Evaluates `num_steps` batches (int32 scalar, -1 for all).

        Returns `validation_loss`, `validation_examples` and the task's metrics.
        """
        ema = self._remote.ema
        averages = {} if ema is None else {id(weight): averaged for weight, averaged in ema.pairs()}
        pairs = zip(self._remote.model.variables, self._state.model.variables, strict=True)
        for source, target in pairs:
            target.assign(averages.get(id(source), source).numpy())
        return super().evaluate(num_steps)


def split_loop(steps: int, workers: int) -> list[int]:
    """Returns the lengths of the pieces of a loop.

    Workers that are faster run more of them. Few steps make few pieces, because each takes time to
    start.
    """
    most = max(workers, steps // _LEAST_STEPS)
    count = min(steps, workers * _PIECES_PER_WORKER, most)
    return [steps // count + (place < steps % count) for place in range(count)]
