"""The inner loop of evaluation: every example once, weighted alike."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import orbit
import tensorflow as tf

from orbit_runner.data.step_batches import Chunks
from orbit_runner.determinism.scopes import keyed_draws_scope
from orbit_runner.errors import SettingError
from orbit_runner.state.train_state import TrainState
from orbit_runner.tasks.metrics import Ratio, RunningMean
from orbit_runner.train.inputs.distribute import leading_size
from orbit_runner.train.inputs.partition import Partition
from orbit_runner.train.loops.chunked_loop import chunked_loop, row_of
from orbit_runner.train.loops.iterator_loops import counted_loop, to_the_end
from orbit_runner.utils.autograph import convert

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
        counted: bool = False,
        gathers_outputs: bool = False,
        partition: Partition | None = None,
        make_chunks: Callable[[], Chunks | None] = lambda: None,
    ) -> None:
        """Makes an evaluator; to be called in the strategy's scope.

        Args:
            task: The task.
            state: What is evaluated.
            strategy: Where steps run.
            make_dataset: Makes the distributed data set.
            seed: Seed of random draws, in tasks that make any in evaluation.
            use_tf_function: Whether a step is a graph.
            use_tf_while_loop: Whether an evaluation is one graph.
            counted: Whether there are as many batches as are asked for. Then that graph need not
                look for the end, which would cost batches the sizes that are known before.
            gathers_outputs: Whether the task computes metrics from the outputs of all steps.
            partition: Splits the images of a step over devices, where that is on.
            make_chunks: Gives the batches by their numbers, where no data set is needed.
        """
        options = orbit.StandardEvaluatorOptions(
            use_tf_function=use_tf_function, use_tf_while_loop=use_tf_while_loop
        )
        super().__init__(None, options)
        self.eval_dataset: Any
        self._task, self._state, self._strategy = task, state, strategy
        self._make_dataset, self._seed = make_dataset, seed
        self._partition, self._counted = partition, counted
        self.gathers = gathers_outputs
        self._make_chunks = make_chunks
        self._chunks: Chunks | None = None
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
        self._metrics = [*task.build_metrics(training=False), *metrics_of(state.model)]
        self._has_loss = False

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
            self._chunks = self._make_chunks()
            self.eval_dataset = self._make_dataset() if self._chunks is None else ()
        if self._eval_options.use_tf_while_loop and num_steps == -1:
            num_steps = tf.constant(tf.int32.max)
        ema = self._state.ema
        with ema.applied_scope() if ema is not None else contextlib.nullcontext():
            return super().evaluate(num_steps)

    def create_eval_loop_fn(self, has_state: bool) -> Any:
        """Returns what runs an evaluation."""
        if self._chunks is not None:
            take = convert(self._take_row, self._task)
            loop = chunked_loop(self._chunks, self._strategy, take)
            return lambda _, steps: loop(tf.zeros([], tf.int64), tf.cast(steps, tf.int64))
        if not self._eval_options.use_tf_while_loop:
            return super().create_eval_loop_fn(has_state)
        if self._counted:
            return counted_loop(convert(self.eval_step, self._task))
        return to_the_end(convert(self._evaluate_batch, self._task))

    def eval_begin(self) -> None:
        """Starts the metrics and the count of draws anew, from the global step."""
        self._draws.assign(self._state.global_step.read_value() * _MOST_BATCHES)
        for metric in [self._loss, *self._metrics]:
            reset(metric)

    def eval_step(self, iterator: Any) -> Any:
        """Evaluates one batch on all replicas.

        Args:
            iterator: Of the distributed data set.

        Returns:
            What each replica's step gave, for tasks that aggregate it; else None.
        """
        return self._evaluate_batch(next(iterator))

    def _take_row(self, batches: Any, row: tf.Tensor) -> None:
        self._strategy.run(self._replica_row, args=(batches, row))

    def _replica_row(self, batches: Any, row: tf.Tensor) -> None:
        self._replica_step(row_of(batches, row))

    def _evaluate_batch(self, inputs: Any) -> Any:
        options = self._partition.options if self._partition else None
        outputs = self._strategy.run(self._replica_step, args=(inputs,), options=options)
        if not self.gathers:
            return None
        return tf.nest.map_structure(self._strategy.experimental_local_results, outputs)

    def _replica_step(self, inputs: Any) -> dict[str, Any]:
        # Counted first: tasks of Model Garden may take their inputs apart.
        rows = leading_size(inputs)
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        with keyed_draws_scope(
            self._seed, lambda: self._draws.assign_add(1), replica, "evaluation"
        ):
            parts = self._partition.inputs(inputs) if self._partition else inputs
            logs = self._task.validation_step(parts, model=self._model, metrics=self._metrics)
        if self._task.loss in logs:
            self._has_loss = True
            # A task of Model Garden does not count its examples: then the batch's rows do.
            count = logs.get("examples", rows)
            self._loss.update_state(as_scalar(logs[self._task.loss]), sample_weight=count)
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
        logs = {metric.name: value_of(metric) for metric in self._metrics}
        loss, count = self._loss.read()
        if count > 0:
            logs[LOSS] = loss
            logs[EXAMPLES] = int(count)
        elif self._has_loss:
            raise SettingError("task.validation_data", "gave no example to evaluate")
        if aggregated is not None and not _is_empty(aggregated):
            step = self._state.global_step
            logs.update(self._task.reduce_aggregated_logs(aggregated, global_step=step) or {})
        return logs


def metrics_of(model: Any) -> list[Any]:
    """Returns the metrics that a model has of its own; one that Keras did not make has none."""
    return list(getattr(model, "metrics", ()))


@tf.autograph.experimental.do_not_convert
def value_of(metric: Any) -> Any:
    """Returns what a metric is now, on the host; some of Model Garden's are several in one."""
    if type(metric).result is Ratio.result:
        return metric.read()[0]
    values = metric.result()
    return tf.nest.map_structure(lambda v: v.numpy() if tf.is_tensor(v) else v, values)


def reset(metric: Any) -> None:
    """Starts a metric anew, by whichever name it has for that: Model Garden asks for the older."""
    (metric.reset_state if hasattr(metric, "reset_state") else metric.reset_states)()


def as_scalar(loss: Any) -> tf.Tensor:
    """Returns the loss that a step gave as a float32 scalar, where it is a constant or a vector."""
    loss = tf.cast(loss, tf.float32)
    return loss if loss.shape.rank == 0 else tf.reduce_mean(loss)


def _is_empty(aggregated: Any) -> bool:
    return isinstance(aggregated, (list, tuple, dict)) and not aggregated
