"""Trains several tasks of Model Garden on one model, and evaluates each of them."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import orbit
import tensorflow as tf
from official.modeling.multitask import task_sampler

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.errors import SettingError
from orbit_runner.state.learning_rates import learning_rates
from orbit_runner.state.train_state import TrainState
from orbit_runner.tasks.metrics import RunningMean
from orbit_runner.tasks.multitask import TOTAL_LOSS, JointTask, model_of
from orbit_runner.train.evaluator import Evaluator, as_scalar, value_of
from orbit_runner.train.gradients import StepFn
from orbit_runner.train.trainer import Trainer
from orbit_runner.utils.autograph import convert

if TYPE_CHECKING:
    from orbit_runner.train.loops.loop_pieces import BatchIterator, Results
    from orbit_runner.utils.types import Tensors


class JointTrainer(Trainer):
    """Trains all tasks in each step, on the weighted sum of their losses."""

    _task: JointTask

    def _build_metrics(self) -> dict[str, list[Any]]:
        self._losses = {name: RunningMean("training_loss") for name in self._task.tasks}
        return {name: task.build_metrics(training=True) for name, task in self._task.tasks.items()}

    def _build_recorder(self) -> None:
        """Returns None: only the host knows which tasks were trained and so have a record."""

    def _step_fn(self, config: ExperimentConfig) -> StepFn:
        _require_plain_steps(config)

        def step(inputs: Tensors) -> dict[str, tf.Tensor]:
            return self._task.multi.joint_train_step(
                inputs,
                multi_task_model=self.state.model,
                optimizer=self.state.optimizer,
                task_metrics=self._metrics,
            )

        return step

    def train_step(self, iterator: Mapping[str, BatchIterator]) -> None:
        """Runs one step on all replicas, on a batch of each task.

        `iterator` maps the names of the tasks to iterators over their datasets.
        """
        self._run_step({name: next(own) for name, own in iterator.items()})

    def _convert(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return convert(function, self._task.multi)

    def _record(self, logs: dict[str, tf.Tensor]) -> None:
        super()._record(logs)
        for name, loss in self._losses.items():
            if name in logs:
                loss.update_state(as_scalar(logs[name]))

    def train_loop_end(self) -> Results:
        """Returns `training_loss`, the learning rates, and the metrics of each task by its name.

        Tasks that were not trained since the last record are left out.
        """
        logs: Results = {"training_loss": self._loss.result().numpy()}
        for name, loss in self._losses.items():
            if loss.weight() > 0:
                metrics = [loss, *self._metrics[name]]
                logs[name] = {metric.name: value_of(metric) for metric in metrics}
        return {**logs, **learning_rates(self.state.optimizer)}

    def _all_metrics(self) -> list[Any]:
        task_metrics = [metric for metrics in self._metrics.values() for metric in metrics]
        return [self._loss, *self._losses.values(), *task_metrics]

    def batch_counts(self, steps: int) -> dict[str, int]:
        """Returns the number of batches of each task in the first `steps` steps of a run."""
        return dict.fromkeys(self._task.tasks, steps)


class InterleavingTrainer(JointTrainer):
    """Trains one task in each step, drawn with the probabilities of Model Garden's sampler."""

    def _step_fn(self, config: ExperimentConfig) -> StepFn:
        _require_plain_steps(config)
        self._sampler = task_sampler.get_task_sampler(
            config.for_task.trainer.task_sampler, self._task.multi.task_weights
        )

        def step(inputs: Tensors) -> dict[str, tf.Tensor]:
            ((name, batch),) = inputs.items()
            task = self._task.tasks[name]
            logs = task.train_step(
                batch,
                model=model_of(self.state.model, name),
                optimizer=self.state.optimizer,
                metrics=self._metrics[name],
            )
            return {TOTAL_LOSS: logs[task.loss], name: logs[task.loss]}

        return step

    def train_step(self, iterator: Mapping[str, BatchIterator]) -> None:
        """Runs one step on all replicas, on a batch of one task.

        `iterator` maps the names of the tasks to iterators over their datasets.
        """
        index = self._task_index(self.state.global_step.read_value())
        for number, name in enumerate(self._task.tasks):
            if tf.equal(index, number):
                inputs = ({name: next(iterator[name])},)
                self._strategy.run(self._replica_step, inputs, options=self._partition.options)
        self._update_average()

    @tf.autograph.experimental.do_not_convert
    def _inspect_graph(self) -> None:
        """Called in the graph of each task: all have draws, and the number of operations varies."""
        unkeyed = self.unkeyed
        super()._inspect_graph()
        self.unkeyed = list(dict.fromkeys([*unkeyed, *self.unkeyed]))
        self.flops = None

    def _task_index(self, step: tf.Tensor) -> tf.Tensor:
        """Returns the index of the task of a step, int32 scalar, drawn as in Model Garden."""
        drawn = tf.random.stateless_uniform([], seed=tf.stack([tf.zeros_like(step), step]))
        shares = self._sampler.task_cumulative_distribution(step)
        # Rounding may leave the last sum below 1.
        last = len(self._task.tasks) - 1
        return tf.minimum(tf.searchsorted(shares, drawn[tf.newaxis], side="right")[0], last)

    def batch_counts(self, steps: int) -> dict[str, int]:
        """Returns the number of batches of each task in the first `steps` steps of a run."""
        if not steps:
            return dict.fromkeys(self._task.tasks, 0)
        counts = tf.math.bincount(
            self._task_indices(steps), minlength=len(self._task.tasks)
        ).numpy()
        return {name: int(count) for name, count in zip(self._task.tasks, counts, strict=True)}

    def _task_indices(self, steps: int) -> tf.Tensor:
        kind = tf.TensorSpec([], tf.int32)

        @tf.function
        def task_indices() -> tf.Tensor:
            return tf.map_fn(
                self._task_index, tf.range(steps, dtype=tf.int64), fn_output_signature=kind
            )

        return task_indices()


TRAINERS = {"joint": JointTrainer, "interleaving": InterleavingTrainer}


def _require_plain_steps(config: ExperimentConfig) -> None:
    for path, is_set in (
        ("runtime.enable_xla", config.runtime.enable_xla),
        ("trainer.gradient_accumulation_steps", config.trainer.gradient_accumulation_steps > 1),
        ("trainer.watch_interval", config.trainer.watch_interval > 0),
    ):
        if is_set:
            raise SettingError(
                path,
                "is not supported when several tasks are trained; omit it",
                code="not-supported",
            )


@dataclasses.dataclass(frozen=True)
class TaskEvaluator:
    """The evaluator of one task."""

    evaluator: Evaluator
    steps: int | None  # None: as many batches as `MultiEvaluator.evaluate` is called with


class MultiEvaluator(orbit.AbstractEvaluator):
    """Evaluates one task after another, on the averaged weights if an average is kept.

    The evaluators of the tasks must not swap weights themselves.
    """

    def __init__(self, evaluators: Mapping[str, TaskEvaluator], state: TrainState) -> None:
        self._evaluators = evaluators
        self._state = state

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The names of the metrics that are known before an evaluation, as `task|metric`."""
        return tuple(
            f"{name}|{metric}"
            for name, part in self._evaluators.items()
            for metric in part.evaluator.metric_names
        )

    @property
    def gathers(self) -> bool:
        """Whether a task adds metrics that are not known in advance."""
        return any(part.evaluator.gathers for part in self._evaluators.values())

    def evaluate(self, num_steps: tf.Tensor) -> Results:
        """Evaluates all tasks and returns their results by task name.

        `num_steps` (int32 scalar, -1 for all batches) applies to tasks without a number of their
        own.
        """
        ema = self._state.ema
        with ema.applied_scope() if ema is not None else contextlib.nullcontext():
            return {
                name: part.evaluator.evaluate(
                    num_steps if not part.steps else tf.constant(part.steps)
                )
                for name, part in self._evaluators.items()
            }
