"""The processes that train together, seen from one of them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import tensorflow as tf


class Workers:
    """Says whether this process is the chief, and lets all agree on what to do next.

    Each worker runs the same program; what one of them alone knows (a signal that it got, the
    checkpoint that it found, how long a loop should be) has to be shared before any acts on it, or
    they part and wait for each other forever.

    Attributes:
        count: How many there are.
        is_chief: Whether this is the one that writes.
        name: Such as `worker 1`; "" where there is only one.
    """

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        """Looks at a strategy.

        Args:
            strategy: Where the run takes place.
        """
        self._strategy = strategy
        self.count, self.is_chief, self.name = 1, True, ""
        if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
            self.count = strategy.extended._num_workers
            self.is_chief = strategy.extended.should_checkpoint
        if self.count > 1:
            resolver = strategy.cluster_resolver
            self.name = f"{resolver.task_type} {resolver.task_id}"
            self._sum = tf.function(self._summed, autograph=False)

    def sums(self, values: Sequence[int]) -> list[int]:
        """Adds numbers up over all workers; each has to call it, at the same point.

        Args:
            values: This worker's numbers.

        Returns:
            Their sums.
        """
        if self.count == 1:
            return [int(value) for value in values]
        return [int(value) for value in self._sum(tf.constant(values, tf.int64)).numpy()]

    def of_chief(self, value: int) -> int:
        """Returns the chief's value to all.

        Args:
            value: This worker's.
        """
        return self.sums([value if self.is_chief else 0])[0]

    def all(self, fact: bool) -> bool:
        """Returns whether something holds on every worker.

        Args:
            fact: Whether it holds on this one.
        """
        return self.sums([0 if fact else 1])[0] == 0

    def acknowledge(self) -> None:
        """Waits until every worker has the result of the last agreement.

        Each worker has to call it before it leaves because of that result: one that leaves aborts
        the collective of another that is still waiting for it.
        """
        if self.count > 1:
            with contextlib.suppress(tf.errors.OpError):  # All others have left already.
                self.sums([0])

    def _summed(self, values: tf.Tensor) -> tf.Tensor:
        def add(own: tf.Tensor) -> tf.Tensor:
            context = tf.distribute.get_replica_context()
            # A worker with several devices has one say.
            place = context.replica_id_in_sync_group % len(self._strategy.extended.worker_devices)
            own = tf.where(place == 0, own, tf.zeros_like(own))
            return context.all_reduce(tf.distribute.ReduceOp.SUM, own)

        results = self._strategy.run(add, args=(values,))
        return self._strategy.experimental_local_results(results)[0]


def describe_strategy(strategy: tf.distribute.Strategy) -> str:
    """Returns a strategy's name and its number of replicas, as checkpoints note them.

    Args:
        strategy: Any strategy.
    """
    name = type(strategy).__name__
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        name = "MultiWorkerMirroredStrategy"  # The class has an older name.
    return f"{name} × {strategy.num_replicas_in_sync}"
