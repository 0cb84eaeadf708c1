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
from orbit_runner.distribute.parameter_server import check_servers, strategy_servers
from orbit_runner.distribute.sharded_variables import merge_shards, name_shards
from orbit_runner.state.train_state import TrainState
from orbit_runner.tasks.adapter import TaskAdapter, adapt
from orbit_runner.train.evaluator import Evaluator, as_scalar
from orbit_runner.train.inputs.distribute import distribute
from orbit_runner.train.loops.loop_pieces import Loop
from orbit_runner.train.schedule import Plan
from orbit_runner.train.trainer import LoopParts, Trainer

if TYPE_CHECKING:
    from official.core import base_task

    from orbit_runner.train.inputs.distribute import DataSection, Dataset
    from orbit_runner.train.loops.loop_pieces import BatchSource, Results
    from orbit_runner.utils.types import Tensors


# Maps the iterator of a worker, if it has one, and the first step of a piece to a function from a
# step to its batch. That function must be called for one step after another.
Source = Callable[[Any, tf.Tensor], Callable[[tf.Tensor], Any]]

_POLL_SECONDS = 0.001


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
        name_shards(state.checkpoint())
        servers = strategy_servers(strategy)
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        self._pace = Pace(sum(member.role == "worker" for member in servers))
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

    def train_loop_begin(self) -> None:
        """Like that of `Trainer`, but creates no dataset if pieces make their own batches."""
        if self.train_dataset is None and self._adapter.starts_at_step:
            none: Any = ()
            self.train_dataset = none
        super().train_loop_begin()

    def loop_fn(self) -> Loop:
        """Returns the function that runs a number of steps."""
        data = self._data()
        batch_at = self._adapter.batch_at(data)

        def source(iterator: Any, first: tf.Tensor) -> Callable[[tf.Tensor], Tensors]:
            if batch_at is not None:
                return batch_at
            if self._adapter.starts_at_step:
                iterator = iter(self._dataset(first, data))
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

    def _dataset(self, start_step: int | tf.Tensor, data: DataSection | None = None) -> Dataset:
        runtime = self._config.runtime
        return distribute(self._strategy, self._adapter, data or self._data(), runtime, start_step)

    def _run(
        self, piece: Callable[..., tf.Tensor], iterator: BatchSource, first: int, steps: int
    ) -> tuple[tf.Tensor, float]:
        losses = []
        step = first
        while step < first + steps:
            start = time.monotonic()
            lengths = self._pace.cut(first + steps - step)
            for length in lengths:
                span = tf.constant(step, tf.int64), tf.constant(length, tf.int64)
                losses.append(self._coordinator.schedule(piece, args=(iterator, *span)))
                step += length
            self._join()
            self._pace.record_time(lengths, time.monotonic() - start)
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
        sources = merge_shards(self._remote.model.variables)
        for source, target in zip(sources, self._state.model.variables, strict=True):
            target.assign(averages.get(id(source), source).numpy())
        return super().evaluate(num_steps)


# Pieces are short, so that little is lost with a worker and workers do not wait long for each other
# at the end of a loop. They are longer if starting one would take more than a tenth of its time.
_PIECE_SECONDS = 0.2
_MAX_START_SHARE = 0.1
_SHARES = 4


class Pace:
    """Splits loops into pieces by the time that steps take.

    Until that is known, each worker receives one piece, and the pieces become longer.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._size = 1
        self._first = 0.0
        self._step = 0.0
        self._wanted = 0.0

    def cut(self, steps: int) -> list[int]:
        """Returns the lengths of the next pieces of the remaining `steps` of a loop.

        They include all steps as soon as it is known how long a step takes.
        """
        count = min(self._workers, steps)
        if not self._step:
            known = self._size * count
            return [self._size] * count if known <= steps else _split_evenly(steps, count)
        # Several pieces for each worker, because some workers are slower, but not so many that
        # starting them takes long.
        several = steps // (self._workers * _SHARES)
        size = min(self._wanted / self._step, max(self._wanted / self._step / _SHARES, several))
        return _split_evenly(steps, max(count, round(steps / max(1.0, size))))

    def record_time(self, lengths: list[int], seconds: float) -> None:
        """Records the seconds from sending the first of the pieces to the end of the last."""
        if self._step:
            return
        length = max(lengths)
        if length == 1:
            # The first piece is not representative, because the step is traced then.
            self._first, self._size = (seconds, 4) if self._first else (float("inf"), 1)
        elif seconds > max(2 * self._first, _PIECE_SECONDS / _SHARES):
            self._step = (seconds - self._first) / (length - 1)
            start_seconds = max(0.0, self._first - self._step)
            self._wanted = max(_PIECE_SECONDS, start_seconds / _MAX_START_SHARE)
        elif length >= self._size:
            self._size *= 4


def _split_evenly(steps: int, count: int) -> list[int]:
    return [steps // count + (place < steps % count) for place in range(count)]
