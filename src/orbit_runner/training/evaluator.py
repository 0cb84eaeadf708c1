"""The inner loop of evaluation: every example once, weighted alike."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import orbit
import tensorflow as tf
from official.core import base_task

from orbit_runner.runtime.randomness import keyed_draws
from orbit_runner.tasks.metrics import RunningMean
from orbit_runner.training.inputs import leading_size
from orbit_runner.training.partition import Partition
from orbit_runner.training.state import TrainState

LOSS = "validation_loss"
EXAMPLES = "validation_examples"
# Of one evaluation; the draws of two evaluations are kept apart by it.
_MOST_BATCHES = 2**32


class Evaluator(orbit.StandardEvaluator):
    """Runs a task's validation step, on the averaged weights where an average is kept."""

    def __init__(
        self,
        task: Any,
        state: TrainState,
        strategy: tf.distribute.Strategy,
        make_dataset: Callable[[], Any],
        *,
        seed: int,
        use_tf_function: bool,
        use_tf_while_loop: bool,
        partition: Partition | None = None,
    ) -> None:
        """Makes an evaluator; to be called in the strategy's scope.

        Args:
            task: The task.
            state: What is evaluated.
            strategy: Where steps run.
            make_dataset: Makes the distributed data set.
            seed: Seed of random draws, in tasks that make any in evaluation.
            use_tf_function: Whether a step is a graph.
            use_tf_while_loop: Whether an evaluation is one graph; its number of steps has to be
                known then.
            partition: Splits the images of a step over devices, where that is on.
        """
        options = orbit.StandardEvaluatorOptions(
            use_tf_function=use_tf_function, use_tf_while_loop=use_tf_while_loop
        )
        super().__init__(None, options)
        self.eval_dataset: Any
        self._task, self._state, self._strategy = task, state, strategy
        self._make_dataset, self._seed = make_dataset, seed
        self._partition = partition
        self._model = partition.model(state.model) if partition else state.model
        # Counts, on each replica, the batches in which something is drawn.
        self._draws = tf.Variable(
            0,
            dtype=tf.int64,
            trainable=False,
            name="evaluation_draws",
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )
        self._loss = RunningMean(LOSS)
        self._metrics = task.build_metrics(training=False) + list(state.model.metrics)

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The metrics that an evaluation gives, as far as they are known before one."""
        return (LOSS, *(metric.name for metric in self._metrics))

    def evaluate(self, num_steps: tf.Tensor) -> dict[str, Any]:
        """Evaluates some batches.

        Args:
            num_steps: int32 scalar; -1 for all there are.

        Returns:
            `validation_loss`, `validation_examples` and the task's metrics.
        """
        if self.eval_dataset is None:
            self.eval_dataset = self._make_dataset()
        ema = self._state.ema
        with ema.applied() if ema is not None else contextlib.nullcontext():
            return super().evaluate(num_steps)

    def eval_begin(self) -> None:
        """Starts the metrics and the count of draws anew, from the global step."""
        self._draws.assign(self._state.global_step.read_value() * _MOST_BATCHES)
        for metric in [self._loss, *self._metrics]:
            metric.reset_state()

    def eval_step(self, iterator: Any) -> Any:
        """Evaluates one batch on all replicas.

        Args:
            iterator: Of the distributed data set.

        Returns:
            What each replica's step gave, for tasks that aggregate it; else None.
        """
        options = self._partition.options if self._partition else None
        outputs = self._strategy.run(self._replica_step, args=(next(iterator),), options=options)
        if not aggregates(self._task):
            return None
        return tf.nest.map_structure(self._strategy.experimental_local_results, outputs)

    def _replica_step(self, inputs: Any) -> dict[str, Any]:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        with keyed_draws(self._seed, lambda: self._draws.assign_add(1), replica, "evaluation"):
            parts = self._partition.inputs(inputs) if self._partition else inputs
            logs = self._task.validation_step(parts, model=self._model, metrics=self._metrics)
        if self._task.loss in logs:
            # A task of Model Garden does not count its examples: then the batch's rows do.
            count = logs.get("examples", leading_size(inputs))
            self._loss.update_state(logs[self._task.loss], sample_weight=count)
        return logs

    def eval_reduce(self, state: Any = None, step_outputs: Any = None) -> Any:
        """Hands a step's outputs to the task, where it aggregates them.

        Args:
            state: What the call before returned.
            step_outputs: What `eval_step` returned.

        Returns:
            The new state.
        """
        if step_outputs is None:
            return state
        return self._task.aggregate_logs(state, step_outputs)

    def eval_end(self, aggregated: Any = None) -> dict[str, Any]:
        """Reads the metrics.

        Args:
            aggregated: What the last `eval_reduce` returned.

        Returns:
            Name to value.
        """
        logs = {metric.name: metric.result().numpy() for metric in self._metrics}
        if self._loss.weight() > 0:
            logs[LOSS] = self._loss.result().numpy()
            logs[EXAMPLES] = int(self._loss.weight().numpy())
        if aggregated is not None:
            step = self._state.global_step
            logs.update(self._task.reduce_aggregated_logs(aggregated, global_step=step))
        return logs


def aggregates(task: Any) -> bool:
    """Returns whether a task gathers the outputs of its steps, on the host, and adds metrics.

    Args:
        task: Any task.
    """
    return type(task).aggregate_logs is not base_task.Task.aggregate_logs
