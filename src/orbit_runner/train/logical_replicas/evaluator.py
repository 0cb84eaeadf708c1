"""The inner loop of evaluation, on batches that are divided into the shards of logical replicas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from orbit_runner.tasks.base import EXAMPLES, drop_padding, split_counts
from orbit_runner.train.evaluator import Evaluator, as_scalar
from orbit_runner.train.inputs.distribute import leading_size
from orbit_runner.train.logical_replicas.shards import (
    Shards,
    keep_on_first_device,
    metric_variables,
)


class LogicalEvaluator(Evaluator):
    """Sums metrics and losses of all logical replicas in one tree.

    So the results of an evaluation are the same on any number of devices. For tasks whose batches
    can all be divided equally, and which gather no outputs.
    """

    def __init__(self, logical: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        count = self._strategy.num_replicas_in_sync
        self._shards = Shards(logical, count, self._seed, "evaluation")

    def _replica_full_step(self, inputs: Any) -> None:
        self._evaluate_shards(
            inputs, lambda shard: self._evaluate(split_counts(self._task, shard)[0])
        )

    def _replica_partial_step(self, inputs: Any) -> None:
        self._evaluate_shards(inputs, self._evaluate_examples)

    def _replica_step(self, inputs: Any) -> dict[str, Any]:
        self._evaluate_shards(inputs, self._evaluate)
        return {}

    def _evaluate_shards(self, inputs: Any, evaluate: Callable[[Any], list[tf.Tensor]]) -> None:
        variables = metric_variables(self._metrics)
        totals = self._shards.sum_over_shards(
            evaluate, inputs, self._draws.assign_add(1), metrics=variables
        )
        if self._has_loss:
            self._loss.add(*map(keep_on_first_device, totals))

    def _evaluate(self, batch: Any) -> list[tf.Tensor]:
        """Returns the loss of a shard times its weight, and its weight; 0 if it has no loss."""
        # Counted first, because tasks may modify their inputs.
        rows = leading_size(batch)
        logs = self._task.validation_step(batch, model=self._model, metrics=self._metrics)
        if self._task.loss not in logs:
            return [tf.zeros([]), tf.zeros([])]
        self._has_loss = True
        count = tf.cast(logs.get(EXAMPLES, rows), tf.float32)
        # A batch without examples may have a loss that is NaN.
        return [tf.math.multiply_no_nan(as_scalar(logs[self._task.loss]), count), count]

    def _evaluate_examples(self, batch: Any) -> list[tf.Tensor]:
        """Returns the same for the rows of a shard that are examples, of which it may have none."""
        examples, rows = drop_padding(self._task, batch)
        if rows is None:
            return self._evaluate(batch)
        totals: list[tf.Tensor] = tf.cond(
            rows > 0, lambda: self._evaluate(examples), lambda: [tf.zeros([]), tf.zeros([])]
        )
        return totals
