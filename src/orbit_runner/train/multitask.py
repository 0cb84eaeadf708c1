"""The steps that train several tasks of Model Garden on one model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

import tensorflow as tf
from official.modeling.multitask import task_sampler

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.runtime import LOGICAL_REPLICAS
from orbit_runner.errors import SettingError, unknown_name_message
from orbit_runner.state.train_state import TrainState
from orbit_runner.tasks.multitask import TOTAL_LOSS, JointTask, model_of
from orbit_runner.train.gradients import StepFn
from orbit_runner.train.steps import StepMetrics

_KINDS = ("joint", "interleaving")

if TYPE_CHECKING:
    from orbit_runner.state.learning_rates import AppliesGradients
    from orbit_runner.train.inputs.batches import RunStep
    from orbit_runner.train.loops.loop_pieces import BatchIterator
    from orbit_runner.utils.types import Tensors


@dataclasses.dataclass(frozen=True)
class JointSteps:
    """Trains all tasks in each step, on the weighted sum of their losses."""

    task: JointTask
    state: TrainState
    metrics: StepMetrics
    has_one_graph = True  # the same for each step

    def build(self, optimizer: AppliesGradients) -> StepFn:
        """Returns a function of a batch of each task."""

        def step(inputs: Tensors) -> dict[str, tf.Tensor]:
            return self.task.multi.joint_train_step(
                inputs,
                multi_task_model=self.state.model,
                optimizer=optimizer,
                task_metrics=self.metrics.tasks,
            )

        return step

    def take(self, run_step: RunStep, iterators: Mapping[str, BatchIterator]) -> None:
        """Runs a step on the next batch of each task."""
        run_step({name: next(own) for name, own in iterators.items()})

    def batch_counts(self, steps: int) -> dict[str, int]:
        """Returns the number of batches of each task in the first `steps` steps of a run."""
        return dict.fromkeys(self.task.tasks, steps)


@dataclasses.dataclass(frozen=True)
class InterleavedSteps:
    """Trains one task in each step, drawn with the probabilities of Model Garden's sampler."""

    task: JointTask
    state: TrainState
    metrics: StepMetrics
    sampler: task_sampler.TaskSampler
    has_one_graph = False

    def build(self, optimizer: AppliesGradients) -> StepFn:
        """Returns a function of a batch of one task, by its name."""

        def step(inputs: Tensors) -> dict[str, tf.Tensor]:
            ((name, batch),) = inputs.items()
            task = self.task.tasks[name]
            logs = task.train_step(
                batch,
                model=model_of(self.state.model, name),
                optimizer=optimizer,
                metrics=self.metrics.tasks[name],
            )
            return {TOTAL_LOSS: logs[task.loss], name: logs[task.loss]}

        return step

    def take(self, run_step: RunStep, iterators: Mapping[str, BatchIterator]) -> None:
        """Runs a step on the next batch of the task that is drawn."""
        index = self._task_index(self.state.global_step.read_value())
        for number, name in enumerate(self.task.tasks):
            if tf.equal(index, number):
                run_step({name: next(iterators[name])})

    def _task_index(self, step: tf.Tensor) -> tf.Tensor:
        """Returns the index of the task of a step, int32 scalar, drawn as in Model Garden."""
        drawn = tf.random.stateless_uniform([], seed=tf.stack([tf.zeros_like(step), step]))
        shares = self.sampler.task_cumulative_distribution(step)
        # Rounding may leave the last sum below 1.
        last = len(self.task.tasks) - 1
        return tf.minimum(tf.searchsorted(shares, drawn[tf.newaxis], side="right")[0], last)

    def batch_counts(self, steps: int) -> dict[str, int]:
        """Returns the number of batches of each task in the first `steps` steps of a run."""
        if not steps:
            return dict.fromkeys(self.task.tasks, 0)

        @tf.function
        def task_indices() -> tf.Tensor:
            kind = tf.TensorSpec([], tf.int32)
            numbers = tf.range(steps, dtype=tf.int64)
            return tf.map_fn(self._task_index, numbers, fn_output_signature=kind)

        counts = tf.math.bincount(task_indices(), minlength=len(self.task.tasks)).numpy()
        return {name: int(count) for name, count in zip(self.task.tasks, counts, strict=True)}


def build_steps(
    config: ExperimentConfig, task: JointTask, state: TrainState
) -> JointSteps | InterleavedSteps:
    """Returns the steps of `trainer.trainer_type`.

    Raises SettingError if there is no such type, or if settings are only for a single task.
    """
    for path, is_set in (
        (LOGICAL_REPLICAS, bool(config.runtime.logical_replicas)),
        ("runtime.enable_xla", config.runtime.enable_xla),
        ("trainer.gradient_accumulation_steps", config.trainer.gradient_accumulation_steps > 1),
    ):
        if is_set:
            reason = "is not supported when several tasks are trained; omit it"
            raise SettingError(path, reason, code="not-supported")
    kind = config.for_task.trainer.trainer_type
    if kind not in _KINDS:
        raise SettingError(
            "trainer.trainer_type",
            unknown_name_message("trainer", kind, list(_KINDS)),
            code="not-allowed",
        )
    metrics = {name: subtask.build_metrics(training=True) for name, subtask in task.tasks.items()}
    step_metrics = StepMetrics(task.loss, tasks=metrics)
    if kind == "joint":
        return JointSteps(task, state, step_metrics)
    settings = config.for_task.trainer.task_sampler
    sampler = task_sampler.get_task_sampler(settings, task.multi.task_weights)
    return InterleavedSteps(task, state, step_metrics, sampler)
