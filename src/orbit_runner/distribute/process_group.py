"""The processes that train together, as seen by one of them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import tensorflow as tf

from orbit_runner.config.schema.strategies import STRATEGIES, StrategyTraits
from orbit_runner.tf_internals import default_strategy, worker_count


def traits_of(strategy: tf.distribute.Strategy) -> StrategyTraits:
    """Returns what a strategy can do, which may be another one than `runtime` names."""
    names = {cls.__name__ for cls in type(strategy).__mro__}
    return next(
        (traits for traits in STRATEGIES.values() if traits.class_name in names), StrategyTraits()
    )


def is_asynchronous(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether workers take steps without waiting for each other (`parameter_server`)."""
    return traits_of(strategy).is_asynchronous


def local_strategy(strategy: tf.distribute.Strategy) -> tf.distribute.Strategy:
    """Returns the strategy for computations of this process alone.

    With asynchronous workers, that is the default strategy, because steps that are not scheduled on
    workers must not run in the scope of the run's own strategy.
    """
    # `tf.distribute.get_strategy` would return the current strategy instead.
    return default_strategy() if is_asynchronous(strategy) else strategy


def graph_count(strategy: tf.distribute.Strategy) -> int:
    """Returns how many graphs compute a step together, each with as many ops as that of this one.

    The graph of a process has the ops of all replicas in it, but of a single one on TPUs.
    """
    if traits_of(strategy).uses_tpu:
        return int(strategy.num_replicas_in_sync)
    return Workers(strategy).count


class Workers:
    """Tells whether this process is the chief, and lets all workers agree on values.

    Each worker runs the same program. What only one of them knows (a signal that it received, the
    checkpoint that it found, the length of a loop) must be shared before any worker acts on it.
    Otherwise, the workers diverge and wait for each other forever.

    `name` is for example `worker 1`; "" if there is only one worker. `strategy` is that of the run.
    """

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        self.strategy = strategy
        self.count = 1
        self.is_chief = True
        self.name = ""
        if traits_of(strategy).synchronous_workers:
            self.count = worker_count(strategy)
            self.is_chief = strategy.extended.should_checkpoint
        if self.count > 1:
            resolver = strategy.cluster_resolver
            self.name = f"{resolver.task_type} {resolver.task_id}"
            self._sum = tf.function(self._all_reduce, autograph=False)

    def all_reduce_sum(self, values: Sequence[int]) -> list[int]:
        """Returns the sum of each value over all workers; all must call it at the same point."""
        if self.count == 1:
            return [int(value) for value in values]
        return [int(value) for value in self._sum(tf.constant(values, tf.int64)).numpy()]

    def broadcast_from_chief(self, value: int) -> int:
        """Returns the chief's value on all workers; all must call it at the same point."""
        return self.all_reduce_sum([value if self.is_chief else 0])[0]

    def all(self, fact: bool) -> bool:
        """Returns whether `fact` holds on every worker; all must call it at the same point."""
        return self.all_reduce_sum([0 if fact else 1])[0] == 0

    def acknowledge(self) -> None:
        """Waits until every worker has the result of the last agreement.

        Each worker must call it before it exits because of that result: a worker that exits aborts
        the collective of another worker that is still waiting for it.
        """
        if self.count > 1:
            with contextlib.suppress(tf.errors.OpError):  # All others have already exited.
                self.all_reduce_sum([0])

    def _all_reduce(self, values: tf.Tensor) -> tf.Tensor:
        def add(own: tf.Tensor) -> tf.Tensor:
            context = tf.distribute.get_replica_context()
            # A worker with several devices counts once.
            place = context.replica_id_in_sync_group % len(self.strategy.extended.worker_devices)
            own = tf.where(place == 0, own, tf.zeros_like(own))
            return context.all_reduce(tf.distribute.ReduceOp.SUM, own)

        results = self.strategy.run(add, args=(values,))
        return self.strategy.experimental_local_results(results)[0]


def describe_strategy(strategy: tf.distribute.Strategy) -> str:
    """Returns a strategy's name and its number of replicas, as checkpoints record them."""
    name = type(strategy).__name__
    if traits_of(strategy).synchronous_workers:
        name = "MultiWorkerMirroredStrategy"  # The class has an older name.
    return f"{name} × {strategy.num_replicas_in_sync}"
