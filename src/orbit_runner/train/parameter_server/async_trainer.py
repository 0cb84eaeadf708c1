"""The inner loop of training under `parameter_server`, in pieces that any worker can run."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from orbit_runner.config.schema.data import resolve_data_config
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.determinism.scopes import keyed_draws_scope
from orbit_runner.distribute.parameter_server import check_servers, strategy_servers
from orbit_runner.distribute.sharded_variables import name_shards
from orbit_runner.state.train_state import TrainState
from orbit_runner.tasks.adapter import TaskAdapter
from orbit_runner.train.evaluator import as_scalar
from orbit_runner.train.inputs.distribute import distribute
from orbit_runner.train.loops.piece_lengths import Pace
from orbit_runner.train.schedule import Plan
from orbit_runner.train.trainer import Trainer

# Maps the iterator of a worker, if it has one, and the first step of a piece to a function from a
# step to its batch. That function must be called for one step after another.
Source = Callable[[Any, tf.Tensor], Callable[[tf.Tensor], Any]]

_POLL_SECONDS = 0.001


class AsyncTrainer(Trainer):
    """Runs a task's training step on workers that do not wait for each other.

    A worker receives a piece of the loop: its first step and the number of steps. If the task's
    input pipeline can start at any step, these determine the batches of the piece, whichever worker
    runs it. If a worker is lost, another one runs its piece again. Some of its steps then run
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
    ) -> None:
        super().__init__(config, adapter.task, state, plan, strategy, self._dataset)
        name_shards(state.checkpoint())
        servers = strategy_servers(strategy)
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        self._pace = Pace(sum(member.role == "worker" for member in servers))
        self._config, self._adapter = config, adapter

    def enable_records_in_graph(self) -> bool:
        """Returns False: the workers share a loop, so none of them knows when a record ends."""
        return False

    def rewind(self) -> None:
        """Makes the next loop start at the global step, which was set back.

        The examples then have another order, if it depends on the seed.
        """
        super().rewind()
        self._train_loop_fn = None

    def train_loop_begin(self) -> None:
        """Like that of `Trainer`, but creates no dataset if pieces make their own batches."""
        if self.train_dataset is None and self._adapter.starts_at_step:
            none: Any = ()
            self.train_dataset = none
        super().train_loop_begin()

    def loop_fn(self) -> Callable[[Any, tf.Tensor], None]:
        """Returns the function that runs a number of steps."""
        data = self._data()
        batch_at = self._adapter.batch_at(data)

        def source(iterator: Any, first: tf.Tensor) -> Callable[[tf.Tensor], Any]:
            if batch_at is not None:
                return batch_at
            if self._adapter.starts_at_step:
                iterator = iter(self._dataset(first, data))
            return lambda step: next(iterator)

        piece = tf.function(functools.partial(self._run_piece, source))

        def loop(iterator: Any, num_steps: tf.Tensor) -> None:
            first, steps = int(self.state.global_step.numpy()), int(num_steps)
            updates = int(self.state.optimizer.iterations.numpy())
            self._loss.add(*self._run(piece, iterator, first, steps))
            self.state.optimizer.iterations.assign(updates + steps)
            self.state.global_step.assign(first + steps)

        return loop

    def _data(self) -> Any:
        config = self._config
        recoveries = int(self.state.recoveries.numpy())
        return resolve_data_config(config.for_task.task.train_data, config.runtime, recoveries)

    def _dataset(self, start_step: Any, data: Any = None) -> Any:
        runtime = self._config.runtime
        return distribute(self._strategy, self._adapter, data or self._data(), runtime, start_step)

    def _run(self, piece: Any, iterator: Any, first: int, steps: int) -> tuple[tf.Tensor, float]:
        losses, step = [], first
        while step < first + steps:
            start, lengths = time.monotonic(), self._pace.cut(first + steps - step)
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

    def _run_piece(self, source: Source, iterator: Any, first: Any, length: Any) -> tf.Tensor:
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

    def _replica_piece(self, inputs: Any, step: tf.Tensor) -> tf.Tensor:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        with keyed_draws_scope(self._seed, step, replica):
            logs = self._step(inputs)
        self._inspect_graph()
        return as_scalar(logs[self._task.loss])
