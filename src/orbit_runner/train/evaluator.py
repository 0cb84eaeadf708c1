"""The inner loop of evaluation. Every example is used once, with the same weight."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orbit
import tensorflow as tf

from orbit_runner.determinism.scopes import keyed_draws_scope
from orbit_runner.distribute.process_group import traits_of
from orbit_runner.errors import SettingError
from orbit_runner.state.train_state import TrainState
from orbit_runner.tasks.base import drop_padding, split_counts
from orbit_runner.tasks.metrics import Ratio, RunningMean
from orbit_runner.train.inputs.batches import Batches
from orbit_runner.train.inputs.distribute import Partition, leading_size
from orbit_runner.train.loops.graph_loops import row_of
from orbit_runner.utils.metrics import name_problem
from orbit_runner.utils.variables import kept_values_scope

if TYPE_CHECKING:
    import tf_keras
    from official.core import base_task
    from tensorflow.types.experimental import TensorLike

    from orbit_runner.train.loops.loop_pieces import BatchIterator, BatchSource, Results
    from orbit_runner.utils.types import Tensors


LOSS = "validation_loss"
EXAMPLES = "validation_examples"
# The maximum number of batches in an evaluation. It separates the random draws of two evaluations.
MAX_BATCHES = 2**32

# Evaluates a batch of a replica, and returns its logs.
Step = Callable[[Any], dict[str, Any]]
# Runs a step on the inputs of a device, with their random draws. The other arguments are the
# counter of draws and the metrics that the step updates.
StepRunner = Callable[[Step, Any, tf.Variable, Sequence[Any]], dict[str, Any]]


class Evaluator(orbit.AbstractEvaluator):
    """Evaluates a task, or several one after another."""

    def __init__(
        self,
        evaluations: Mapping[str, TaskEvaluation],  # by the name of the task; "" for a single one
        # Makes the model have the weights to evaluate in a `with` block, such as their average.
        weights_scope: Callable[[], contextlib.AbstractContextManager[None]],
    ) -> None:
        self._evaluations = evaluations
        self._weights_scope = weights_scope

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The names of the metrics that are known in advance; `task|metric` of several tasks."""
        return tuple(
            f"{name}|{metric}" if name else metric
            for name, evaluation in self._evaluations.items()
            for metric in evaluation.metric_names
        )

    @property
    def gathers(self) -> bool:
        """Whether a task adds metrics that are not known in advance."""
        return any(evaluation.gathers for evaluation in self._evaluations.values())

    def evaluate(self, num_steps: tf.Tensor) -> Results:
        """Evaluates `num_steps` batches (int32 scalar, -1 for all), or as many as a task has set.

        Returns `validation_loss`, `validation_examples` and the task's metrics; those of several
        tasks by the name of the task.
        """
        with self._weights_scope():
            logs = {
                name: evaluation.evaluate(int(num_steps))
                for name, evaluation in self._evaluations.items()
            }
        return logs.get("", logs)


class TaskEvaluation:
    """Runs the validation step of one task. Must be created in the strategy's scope."""

    def __init__(
        self,
        task: base_task.Task,
        state: TrainState,
        strategy: tf.distribute.Strategy,
        batches: Batches,
        run_step: StepRunner,
        partition: Partition,  # splits the images of a step over the devices of a TPU
        *,
        steps: int | None = None,  # the number of batches; None: as many as requested
        steps_per_batch: int = 1,
        # The number of batches before the first batch with rows that only fill it up.
        full_batches: int = 0,
        # Whether the task computes metrics from the outputs of all steps.
        gathers: bool = False,
    ) -> None:
        self._task = task
        self._state = state
        self._strategy = strategy
        self._batches = batches
        self._run_step = run_step
        self._partition = partition
        self._steps = steps
        self._steps_per_batch = steps_per_batch
        self._full_batches = full_batches
        self.gathers = gathers
        # Runs a number of steps, and returns what the task gathered. Made when it is first needed.
        self._loop: Callable[[BatchSource, int], Any] | None = None
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

    def evaluate(self, num_steps: int) -> Results:
        """Evaluates a number of batches, -1 for all, unless the evaluation has its own number."""
        steps = self._steps or num_steps
        if steps > 0:
            steps = min(steps * self._steps_per_batch, tf.int32.max)
        source = self._batches.start(0)
        with kept_values_scope(self._kept_variables()):
            self._draws.assign(self._state.global_step.read_value() * MAX_BATCHES)
            for metric in [self._loss, *self._metrics]:
                reset_metric(metric)
            if self._loop is None:
                self._loop = self._make_gathering_loop() if self.gathers else self._make_loop()
            return self._logs(self._loop(source, steps))

    def _kept_variables(self) -> list[tf.Variable]:
        """Returns variables of the training that evaluations change."""
        keeps = getattr(self._task, "kept_in_evaluation", None)
        return keeps() if callable(keeps) else []

    def _make_gathering_loop(self) -> Callable[[BatchSource, int], object]:
        """Returns a loop on the host, which passes the outputs of each step to the task."""
        run = self._on_all_replicas(self._validate)

        @tf.function
        def step(iterator: BatchIterator) -> Tensors:
            outputs = run(next(iterator))
            return tf.nest.map_structure(self._strategy.experimental_local_results, outputs)

        loop = orbit.utils.create_loop_fn(step)
        aggregate = self._task.aggregate_logs
        return lambda source, steps: loop(source, tf.constant(steps), None, aggregate)

    def _make_loop(self) -> Callable[[BatchSource, int], None]:
        """Returns a loop in a graph.

        Full batches have separate steps, whose shapes are static, unless padding is evaluated.
        """
        one_step = traits_of(self._strategy).evaluates_padding
        full_step = self._validate if one_step else self._validate_full
        full_loop, rest_loop = (
            self._batches.loop(self._on_all_replicas(step), self._task)
            for step in (full_step, self._validate_partial)
        )
        most_full = tf.int32.max if one_step else self._full_batches

        @tf.function(autograph=False)
        def both_loops(source: BatchSource, full: tf.Tensor, rest: tf.Tensor) -> None:
            full_loop(source, tf.zeros([], tf.int64), full)
            rest_loop(source, full, rest)

        def loop(source: BatchSource, steps: int) -> None:
            steps = tf.int32.max if steps < 0 else steps
            full = tf.constant(min(steps, most_full), tf.int64)
            rest = tf.constant(steps, tf.int64) - full
            if full and rest:
                both_loops(source, full, rest)
            elif full:
                full_loop(source, rest, full)
            elif rest:
                rest_loop(source, full, rest)

        return loop

    def _on_all_replicas(self, step: Step) -> Callable[..., Any]:
        """Returns a function that runs a step on a distributed batch, or a row of several."""

        def replica_step(inputs: Tensors, row: tf.Tensor | None = None) -> Results:
            batch = self._partition.split_inputs(inputs if row is None else row_of(inputs, row))
            return self._run_step(step, batch, self._draws, [self._loss, *self._metrics])

        def step_on_all(*inputs: Tensors) -> Tensors:
            return self._strategy.run(replica_step, args=inputs, options=self._partition.options)

        return step_on_all

    def _validate_full(self, inputs: Tensors) -> Results:
        """Evaluates a batch whose rows are all examples."""
        self._validate(split_counts(self._task, inputs)[0])
        return {}

    def _validate_partial(self, inputs: Tensors) -> Results:
        """Evaluates the rows of a batch that are examples, if there are any."""
        inputs, rows = drop_padding(self._task, inputs)
        if rows is None:
            return self._validate(inputs)

        def evaluate() -> tf.Tensor:
            self._validate(inputs)
            return tf.zeros([])

        tf.cond(rows > 0, evaluate, lambda: tf.zeros([]))
        return {}

    def _validate(self, inputs: Tensors) -> Results:
        # Counted first, because tasks of Model Garden may modify their inputs.
        rows = leading_size(inputs)
        logs = self._task.validation_step(inputs, model=self._state.model, metrics=self._metrics)
        if self._task.loss in logs:
            self._has_loss = True
            # Tasks of Model Garden do not count examples, so the rows of the batch are counted.
            count = tf.cast(logs.get("examples", rows), tf.float32)
            self._loss.update_state(as_scalar(logs[self._task.loss]), sample_weight=count)
        return logs

    def _logs(self, aggregated: object) -> Results:
        """Returns the metrics by name. `aggregated` is what the task gathered, None for nothing.

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


def evaluate_on_replica(seed: int) -> StepRunner:
    """Returns the runner of a step whose random draws depend on the replica."""

    def run(step: Step, inputs: Tensors, draws: tf.Variable, metrics: Sequence[Any]) -> Results:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        with keyed_draws_scope(seed, lambda: draws.assign_add(1), replica, "evaluation"):
            return step(inputs)

    return run


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


def metric_variables(metrics: Iterable[Any]) -> list[tf.Variable]:
    """Returns the variables of metrics, each once."""
    variables = [variable for metric in metrics for variable in getattr(metric, "variables", ())]
    return list({id(variable): variable for variable in variables}.values())


def reset_metric(metric: Any) -> None:
    """Resets a metric, even if it only has the older method `reset_states`, as in Model Garden."""
    (metric.reset_state if hasattr(metric, "reset_state") else metric.reset_states)()


def as_scalar(loss: TensorLike) -> tf.Tensor:
    """Returns the loss of a step, which may be a constant or a vector, as a float32 scalar."""
    loss = tf.cast(loss, tf.float32)
    return loss if loss.shape.rank == 0 else tf.reduce_mean(loss)


def _is_empty(aggregated: object) -> bool:
    return isinstance(aggregated, (list, tuple, dict)) and not aggregated
