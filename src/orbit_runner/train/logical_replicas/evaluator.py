"""The inner loop of evaluation, on batches that are divided into the shards of logical replicas."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from orbit_runner.tasks.base import EXAMPLES
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

    def _replica_step(self, inputs: Any) -> dict[str, Any]:
        def shard(batch: Any) -> list[tf.Tensor]:
            # Counted first, because tasks may modify their inputs.
            rows = leading_size(batch)
            logs = self._task.validation_step(batch, model=self._model, metrics=self._metrics)
            if self._task.loss not in logs:
                return []
            count = tf.cast(logs.get(EXAMPLES, rows), tf.float32)
            # A batch without examples may have a loss that is NaN.
            return [tf.math.multiply_no_nan(as_scalar(logs[self._task.loss]), count), count]

        found = self._shards.sum_over_shards(
            shard, inputs, self._draws.assign_add(1), metrics=metric_variables(self._metrics)
        )
        if found:
            self._has_loss = True
            self._loss.add(*map(keep_on_first_device, found))
        return {}
