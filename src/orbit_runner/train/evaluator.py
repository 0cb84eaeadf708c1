"""The inner loop of evaluation. Every example is used once, with the same weight."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import orbit
import tensorflow as tf

from orbit_runner.data.step_batches import Chunks
from orbit_runner.determinism.scopes import keyed_draws_scope
from orbit_runner.errors import SettingError
from orbit_runner.state.train_state import TrainState
from orbit_runner.tasks.base import drop_padding, split_counts
from orbit_runner.tasks.metrics import Ratio, RunningMean
from orbit_runner.train.inputs.distribute import Partition, leading_size
from orbit_runner.train.loops.chunked_loop import chunked_loop, row_of
from orbit_runner.train.loops.iterator_loops import counted_loop, exhausting_loop
from orbit_runner.utils.autograph import convert
from orbit_runner.utils.metrics import name_problem

if TYPE_CHECKING:
    import tf_keras
    from official.core import base_task
    from tensorflow.types.experimental import TensorLike

    from orbit_runner.train.inputs.distribute import Dataset
    from orbit_runner.train.loops.loop_pieces import BatchIterator, BatchSource, Results
    from orbit_runner.utils.types import Tensors


LOSS = "validation_loss"
EXAMPLES = "validation_examples"
# The maximum number of batches in an evaluation. It separates the random draws of two evaluations.
MAX_BATCHES = 2**32


class Evaluator(orbit.StandardEvaluator):
    """Runs a task's validation step, on the averaged weights if an average is kept.

    Must be created in the strategy's scope.
    """

    def __init__(
        self,
        task: base_task.Task,
        state: TrainState,
        strategy: tf.distribute.Strategy,
        make_dataset: Callable[[], Dataset],  # returns the distributed dataset
        *,
        seed: int,
        # Whether there are as many batches as requested. The graph then need not check for the end,
        # and the batches keep their static shapes.
        counted: bool = False,
        # The number of batches before the first batch with rows that only fill it up.
        full_batches: int = 0,
        # Whether the task computes metrics from the outputs of all steps.
        gathers_outputs: bool = False,
        # Splits the images of a step over the devices of a TPU; None if they are not split.
        partition: Partition | None = None,
        # Returns the batches by their numbers, or None if a dataset is needed.
        make_chunks: Callable[[], Chunks | None] = lambda: None,
    ) -> None:
        # A loop in a graph cannot gather outputs on the host.
        super().__init__(
            None, orbit.StandardEvaluatorOptions(use_tf_while_loop=not gathers_outputs)
        )
        self.eval_dataset: Dataset | tuple[()] | None
        self._task = task
        self._state = state
        self._strategy = strategy
        self._make_dataset = make_dataset
        self._seed = seed
        self._partition = partition
        self._counted = counted
        self.gathers = gathers_outputs
        self._full_batches = full_batches
        # A TPU needs static shapes, and gathered outputs have the rows that a task returns.
        self._drops_padding = not gathers_outputs and not isinstance(
            strategy, tf.distribute.TPUStrategy
        )
        self._make_chunks = make_chunks
        self._chunks: Chunks | None = None
        self._model = state.model
        # Counts the batches with random draws, on each replica.
        self._draws = tf.Variable(
            0,
            dtype=tf.int64,
            trainable=False,
            name="evaluation_draws",
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )
        self._loss = RunningMean(LOSS)
        self._metrics = all_metrics(task, state.model, training=False)
        self._has_loss = False

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The names of the metrics of an evaluation that are known in advance."""
        return (LOSS, *(metric.name for metric in self._metrics))

    def evaluate(self, num_steps: tf.Tensor) -> Results:
        """Evaluates `num_steps` batches (int32 scalar, -1 for all).

        Returns `validation_loss`, `validation_examples` and the task's metrics.
        """
        if self.eval_dataset is None:
            self._chunks = self._make_chunks()
            self.eval_dataset = self._make_dataset() if self._chunks is None else ()
        if not self.gathers and num_steps == -1:
            num_steps = tf.constant(tf.int32.max)
        ema = self._state.ema
        with (
            ema.applied_scope() if ema is not None else contextlib.nullcontext(),
            kept_values_scope(self._kept_variables()),
        ):
            return super().evaluate(num_steps)

    def _kept_variables(self) -> list[tf.Variable]:
        """Returns variables of the training that evaluations change."""
        keeps = getattr(self._task, "kept_in_evaluation", None)
        return keeps() if callable(keeps) else []

    def create_eval_loop_fn(self, has_state: bool) -> Callable[..., object]:
        """Returns the function that runs an evaluation."""
        if not self._drops_padding:
            return self._make_loop(self._replica_step)
        # Separate steps, so that the shapes of all other batches stay static.
        full_loop = self._make_loop(self._replica_full_step)
        rest_loop = self._make_loop(self._replica_partial_step)
        whole_loop = self._make_whole_loop()

        def loop(iterator: BatchSource, num_steps: tf.Tensor, **reduction: object) -> None:
            steps = int(num_steps)
            full = self._full_batches if steps < 0 else min(steps, self._full_batches)
            rest = steps if steps < 0 else steps - full
            if full and rest == 1 and whole_loop is not None:
                whole_loop(iterator, tf.constant(full))
                return
            if full:
                full_loop(iterator, tf.constant(full), **reduction)
            if rest:
                rest_loop(iterator, tf.constant(rest), first=full, **reduction)

        return loop

    def _make_loop(self, replica_step: Callable[[Tensors], object]) -> Callable[..., object]:
        """Returns a function of an iterator and the number of steps, and of the first step."""
        if self._chunks is not None:
            chunked = chunked_loop(self._chunks, self._strategy, self._row_taker(replica_step))
            return lambda _, steps, first=0: chunked(
                (), tf.constant(first, tf.int64), tf.cast(steps, tf.int64)
            )
        if self.gathers:

            @tf.function
            def step(iterator: BatchIterator) -> Tensors | None:
                return self._evaluate_batch(next(iterator), replica_step)

            plain = orbit.utils.create_loop_fn(step)
            return lambda iterator, steps, first=0, **reduction: plain(iterator, steps, **reduction)
        if self._counted:
            loop = counted_loop(self._batch_taker(replica_step))
        else:
            evaluate_batch = functools.partial(self._evaluate_batch, replica_step=replica_step)
            loop = exhausting_loop(convert(evaluate_batch, self._task))
        return lambda iterator, steps, first=0: loop(iterator, steps)

    def _make_whole_loop(self) -> Callable[[BatchSource, tf.Tensor], None] | None:
        """Returns a function that runs some full steps and a partial one, in one graph.

        Its arguments are an iterator and the number of full steps. None if there is no such graph.
        """
        full = self._replica_full_step
        partial = self._replica_partial_step
        if self._chunks is not None:
            chunked = chunked_loop(
                self._chunks,
                self._strategy,
                self._row_taker(full),
                take_last=self._row_taker(partial),
            )
            return lambda _, steps: chunked((), tf.zeros([], tf.int64), tf.cast(steps, tf.int64))
        if self._counted:
            return counted_loop(self._batch_taker(full), self._batch_taker(partial))
        return None

    def _row_taker(
        self, replica_step: Callable[[Tensors], object]
    ) -> Callable[[Tensors, tf.Tensor], None]:
        """Returns a function that evaluates one of several batches on all replicas."""

        def take_row(batches: Tensors, row: tf.Tensor) -> None:
            def replica_row(batches: Tensors, row: tf.Tensor) -> None:
                replica_step(row_of(batches, row))

            self._strategy.run(replica_row, args=(batches, row))

        return convert(take_row, self._task)

    def _batch_taker(
        self, replica_step: Callable[[Tensors], object]
    ) -> Callable[[BatchIterator], object]:
        """Returns a function that evaluates the next batch of an iterator on all replicas."""
        return convert(
            lambda iterator: self._evaluate_batch(next(iterator), replica_step), self._task
        )

    def eval_begin(self) -> None:
        """Resets the metrics, and the counter of random draws to the global step."""
        self._draws.assign(self._state.global_step.read_value() * MAX_BATCHES)
        for metric in [self._loss, *self._metrics]:
            reset_metric(metric)

    def eval_step(self, iterator: BatchIterator) -> Tensors | None:
        """Evaluates one batch of an iterator over the distributed dataset, on all replicas.

        Returns the outputs of each replica if the task aggregates them, otherwise None.
        """
        step = self._replica_partial_step if self._drops_padding else self._replica_step
        return self._evaluate_batch(next(iterator), step)

    def _evaluate_batch(
        self, inputs: Tensors, replica_step: Callable[[Tensors], object]
    ) -> Tensors | None:
        options = self._partition.options if self._partition else None
        outputs = self._strategy.run(replica_step, args=(inputs,), options=options)
        if not self.gathers:
            return None
        return tf.nest.map_structure(self._strategy.experimental_local_results, outputs)

    def _replica_full_step(self, inputs: Tensors) -> None:
        """Evaluates a batch whose rows are all examples."""
        self._replica_step(split_counts(self._task, inputs)[0])

    def _replica_partial_step(self, inputs: Tensors) -> None:
        """Evaluates the rows of a batch that are examples, if there are any."""
        inputs, rows = drop_padding(self._task, inputs)
        if rows is None:
            self._replica_step(inputs)
            return

        def evaluate() -> tf.Tensor:
            self._replica_step(inputs)
            return tf.zeros([])

        tf.cond(rows > 0, evaluate, lambda: tf.zeros([]))

    def _replica_step(self, inputs: Tensors) -> Results:
        # Counted first, because tasks of Model Garden may modify their inputs.
        rows = leading_size(inputs)
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        with keyed_draws_scope(
            self._seed, lambda: self._draws.assign_add(1), replica, "evaluation"
        ):
            parts = self._partition.split_inputs(inputs) if self._partition else inputs
            logs = self._task.validation_step(parts, model=self._model, metrics=self._metrics)
        if self._task.loss in logs:
            self._has_loss = True
            # Tasks of Model Garden do not count examples, so the rows of the batch are counted.
            count = logs.get("examples", rows)
            self._loss.update_state(as_scalar(logs[self._task.loss]), sample_weight=count)
        return logs

    def eval_reduce(self, state: object = None, step_outputs: Tensors | None = None) -> object:
        """Passes a step's outputs to the task, if it aggregates them, and returns the new state."""
        if step_outputs is None:
            return state
        return self._task.aggregate_logs(state, step_outputs)

    def eval_end(self, aggregated: object = None) -> Results:
        """Returns the metrics by name; `aggregated` is the last result of `eval_reduce`.

        Raises SettingError if the dataset has no examples, for tasks that report a loss.
        """
        logs = {metric.name: value_of(metric) for metric in self._metrics}
        loss, count = self._loss.read()
        if count > 0:
            logs.setdefault(LOSS, loss)  # A model with a step of its own may report it.
            logs[EXAMPLES] = round(float(count))  # A sum of weights may be 36.999996.
        elif self._has_loss:
            raise SettingError(
                "task.validation_data", "contains no examples to evaluate", code="empty-data"
            )
        if aggregated is not None and not _is_empty(aggregated):
            step = self._state.global_step
            results = self._task.reduce_aggregated_logs(aggregated, global_step=step) or {}
            # A task may return its own loss and its own number of examples.
            _check_names([*results.keys() - {LOSS, EXAMPLES}])
            logs.update(results)
        return logs


def all_metrics(task: Any, model: tf.Module, *, training: bool) -> list[Any]:
    """Returns the metrics of a task, and those that its model updates itself.

    Raises `SettingError` if a record would not have all of them, because of their names.
    """
    metrics = [*task.build_metrics(training=training)]
    if getattr(task, "builds_all_metrics", False):  # It has checked their names.
        return metrics
    metrics += metrics_of(model)
    # An object may be in both lists.
    _check_names([metric.name for metric in {id(metric): metric for metric in metrics}.values()])
    return metrics


def _check_names(names: Sequence[str]) -> None:
    problems = [*map(name_problem, names)]
    problems += [f"another is also named {name!r}" for name in names if names.count(name) > 1]
    for problem in filter(None, problems):
        raise SettingError("task", f"metrics: {problem}\nrename the metric", code="set-twice")


@contextlib.contextmanager
def kept_values_scope(variables: Sequence[tf.Variable]) -> Iterator[None]:
    """Restores the values of variables after a `with` block, on each replica."""
    parts = [part for variable in variables for part in getattr(variable, "values", (variable,))]
    values = [part.numpy() for part in parts]
    try:
        yield
    finally:
        for part, value in zip(parts, values, strict=True):
            part.assign(value)


def metrics_of(model: tf.Module) -> list[tf_keras.metrics.Metric]:
    """Returns the metrics of a model, or [] if it is not a Keras model."""
    return list(getattr(model, "metrics", ()))


@tf.autograph.experimental.do_not_convert
def value_of(metric: Any) -> Any:
    """Returns a metric's value on the host; some metrics of Model Garden have several values."""
    if type(metric).result is Ratio.result:
        return metric.read()[0]
    values = metric.result()
    return tf.nest.map_structure(lambda v: v.numpy() if tf.is_tensor(v) else v, values)


def reset_metric(metric: Any) -> None:
    """Resets a metric, even if it only has the older method `reset_states`, as in Model Garden."""
    (metric.reset_state if hasattr(metric, "reset_state") else metric.reset_states)()


def as_scalar(loss: TensorLike) -> tf.Tensor:
    """Returns the loss of a step, which may be a constant or a vector, as a float32 scalar."""
    loss = tf.cast(loss, tf.float32)
    return loss if loss.shape.rank == 0 else tf.reduce_mean(loss)


def _is_empty(aggregated: object) -> bool:
    return isinstance(aggregated, (list, tuple, dict)) and not aggregated
