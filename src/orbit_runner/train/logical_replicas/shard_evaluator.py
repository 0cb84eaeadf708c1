"""The inner loop of evaluation, on one shard of a logical replica after another."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from orbit_runner.determinism.scopes import keyed_draws_scope
from orbit_runner.distribute.logical_replica import logical_replica_scope
from orbit_runner.tasks.base import EXAMPLES, drop_padding
from orbit_runner.train.evaluator import MAX_BATCHES, Evaluator, as_scalar
from orbit_runner.train.inputs.distribute import leading_size
from orbit_runner.train.logical_replicas.shards import (
    keep_on_first_device,
    metric_variables,
    trace_function,
)


class ShardEvaluator(Evaluator):
    """Takes one shard for each device in a step, and adds up metrics in the order of the shards.

    So the results of an evaluation are the same on any number of devices. For tasks whose batches
    cannot all be divided equally, and those that gather the outputs of their steps. The dataset has
    a shard in each element.
    """

    def __init__(self, logical: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._logical, self._physical = logical, self._strategy.num_replicas_in_sync
        self._full_batches = 0  # A step takes a part of a batch, which may be the last one.

    def evaluate(self, num_steps: tf.Tensor) -> dict[str, Any]:
        """Evaluates `num_steps` batches (int32 scalar, -1 for all), each of all logical replicas.

        Returns `validation_loss`, `validation_examples` and the task's metrics.
        """
        steps = int(num_steps)
        if steps > 0:
            steps *= self._logical // self._physical
        return super().evaluate(tf.constant(min(steps, tf.int32.max)))

    def _replica_partial_step(self, inputs: Any) -> None:
        self._replica_step(drop_padding(self._task, inputs)[0])

    def _replica_step(self, inputs: Any) -> dict[str, Any]:
        context = tf.distribute.get_replica_context()
        replica = tf.cast(context.replica_id_in_sync_group, tf.int64)
        count = self._draws.assign_add(1) - 1
        shard = count % MAX_BATCHES * self._physical + replica
        step = count // MAX_BATCHES * MAX_BATCHES + shard // self._logical
        variables = metric_variables([self._loss, *self._metrics])
        totals = [tf.identity(variable) for variable in variables]

        def compute(batch: Any, step: tf.Tensor, logical: tf.Tensor) -> tuple[Any, list[tf.Tensor]]:
            rows = leading_size(batch)
            for variable in variables:
                variable.assign(tf.zeros(variable.shape, variable.dtype))
            with (
                logical_replica_scope(self._logical),
                keyed_draws_scope(self._seed, step, logical, "evaluation"),
            ):
                logs = self._task.validation_step(batch, model=self._model, metrics=self._metrics)
            if self._task.loss in logs:
                self._has_loss = True
                weight = tf.cast(logs.get(EXAMPLES, rows), tf.float32)
                self._loss.update_state(as_scalar(logs[self._task.loss]), sample_weight=weight)
            # At the end of the data, devices without a shard get a batch without rows.
            values = map(tf.identity, variables)
            added = [tf.where(rows > 0, one, tf.zeros_like(one)) for one in values]
            return logs, added

        logical = tf.cast(shard % self._logical, tf.int32)
        logs, added = trace_function(compute, inputs, step, logical)(inputs, step, logical)
        for variable, total, value in zip(variables, totals, added, strict=True):
            variable.assign(keep_on_first_device(self._add_in_order(total, value)))
        return logs

    def _add_in_order(self, total: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
        """Returns the total plus the values of all devices, which it adds one after another."""
        if self._physical == 1:
            return total + value
        context = tf.distribute.get_replica_context()
        rows = context.all_gather(value[tf.newaxis], axis=0)
        # A loop, because TensorFlow would merge additions into one op, which adds in another order.
        return tf.foldl(tf.add, rows, initializer=total, parallel_iterations=1)
