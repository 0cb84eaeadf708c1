"""One interface to tasks of this package, tasks of Model Garden, and several trained together.

This module alone looks at what methods a task has and which arguments they take.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

import tensorflow as tf
from official.core import base_task

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.data.chunks import Chunks
from orbit_runner.registry import TASKS
from orbit_runner.storage.staging import localize
from orbit_runner.tasks.multitask import (
    JointTask,
    build_multitask,
    is_multitask,
    is_multitask_class,
)
from orbit_runner.tasks.report_examples import ReportExamples, classification_examples
from orbit_runner.tf_internals import own_weights, set_other_weights

if TYPE_CHECKING:
    import tf_keras
    from official.modeling import hyperparams
    from official.modeling.multitask import base_model, configs, multitask

    from orbit_runner.config.schema.data import DataConfig
    from orbit_runner.utils.types import Tensors

    # A data section of a task of this package, or of Model Garden.
    DataSection: TypeAlias = DataConfig | hyperparams.Config


class TaskAdapter:
    """Gives every kind of task the same interface.

    Attributes:
        task: The task.
        subtasks: The adapters of tasks that are trained together, by name; empty for a single task.
        starts_at_step: Whether the input pipeline can start at any step. If not, a resumed run
            makes the batches of earlier steps again.
    """

    def __init__(self, task: Any) -> None:
        self.task = task
        tasks = task.tasks if isinstance(task, JointTask) else {}
        self.subtasks = {name: TaskAdapter(part) for name, part in tasks.items()}
        parameters = {} if self.subtasks else inspect.signature(task.build_inputs).parameters
        self._takes_step = "start_step" in parameters
        # A task may take a step, but have data that start only at their beginning.
        self.starts_at_step = self._takes_step and getattr(task, "starts_at_step", True)
        self._takes_context = "input_context" in parameters

    @property
    def gathers_outputs(self) -> bool:
        """Whether the task computes metrics from the outputs of all steps of an evaluation."""
        return type(self.task).aggregate_logs is not base_task.Task.aggregate_logs

    def build_model(self) -> tf_keras.Model | base_model.MultiTaskBaseModel:
        """Returns the task's model. Must be called in the strategy's scope."""
        model = self.task.build_model()
        for layer in getattr(model, "submodules", ()):
            # Adapted lookup layers list their vocabulary as a weight, but it is no variable.
            if hasattr(layer, "get_vocabulary"):
                weights = own_weights(layer, trainable=False)
                set_other_weights(
                    layer, [weight for weight in weights if isinstance(weight, tf.Variable)]
                )
        return model

    def build_inputs(
        self,
        data: DataSection,
        context: tf.distribute.InputContext | None,
        start_step: int | tf.Tensor,
    ) -> tf.data.Dataset:
        """Returns the task's dataset, started at `start_step` if `starts_at_step`."""
        arguments: dict[str, Any] = {}
        if self._takes_context:
            arguments["input_context"] = context
        if self.starts_at_step:
            arguments["start_step"] = start_step
        return self.task.build_inputs(data, **arguments)

    def step_batches(self, data: DataSection, replicas: int) -> Chunks | None:
        """Returns the batches of a data section by step, or None if only a pipeline makes them."""
        chunks = getattr(self.task, "chunks", None)
        return None if chunks is None else chunks(data, replicas)

    def batch_at(self, data: DataSection) -> Callable[[tf.Tensor], Tensors] | None:
        """Returns the function from a step to its batch, or None if only a pipeline makes them."""
        batch_at = getattr(self.task, "batch_at", None)
        return None if batch_at is None else batch_at(data)

    def report_examples(
        self, model: tf_keras.Model, batches: Iterable[Tensors]
    ) -> ReportExamples | None:
        """Returns what the report shows of an evaluation, or None if the task has nothing."""
        own = getattr(self.task, "report_examples", None)
        if callable(own):
            return own(model, batches)
        return (
            classification_examples(model, batches) if _is_official_classifier(self.task) else None
        )

    def num_examples(self, data: DataSection) -> int | None:
        """Returns the number of examples of a data section, or None if the task does not know."""
        count = getattr(self.task, "num_examples", None)
        return count(data) if callable(count) else None

    def steps_per_epoch(self, data: DataSection | None) -> float:
        """Returns the number of batches that cover the dataset once, or 0 if it is not known."""
        if data is None:
            return 0.0
        # Tasks whose batches differ in size, such as batches of so many tokens, count them.
        own = getattr(self.task, "steps_per_epoch", None)
        if callable(own):
            return float(own(data))
        return (self.num_examples(data) or 0) / (getattr(data, "global_batch_size", 0) or 1)

    def examples_per_step(self, data: Any) -> float:
        """Returns the average number of examples in a batch, or 0 if it is not known."""
        steps = self.steps_per_epoch(data)
        if steps:
            return (self.num_examples(data) or 0) / steps
        return float(getattr(data, "global_batch_size", 0) or 0)

    def validation_steps(self, data: Any, requested: int) -> int:
        """Returns the number of batches of an evaluation, or -1 for all if it is not known."""
        size = None if data is None else self.num_examples(data)
        if size is None:
            return requested
        batch = data.global_batch_size
        available = size // batch if data.drop_remainder else -(-size // batch)
        return available if requested < 0 else min(requested, available)

    def full_batches(self, data: DataSection | None) -> int:
        """Returns the number of batches of an evaluation before the first one with padding."""
        count = getattr(self.task, "full_batches", None)
        return 0 if count is None or data is None else count(data)

    def inexact_reasons(self) -> list[str]:
        """Returns why the config of this task alone does not reproduce a run; [] if it does."""
        own = getattr(self.task, "inexact_reasons", None)
        return list(own()) if callable(own) else []


def adapt(
    task: base_task.Task | multitask.MultiTask, settings: configs.MultiTaskConfig | None = None
) -> TaskAdapter:
    """Returns the adapter of a task; `settings` is the config of a `MultiTask`."""
    return TaskAdapter(JointTask(task, settings) if is_multitask(task) else task)


def _is_official_classifier(task: object) -> bool:
    """Returns whether a task is Model Garden's image classification with one label per image."""
    module = sys.modules.get("official.vision.tasks.image_classification")
    if module is None or not isinstance(task, module.ImageClassificationTask):
        return False
    return not task.task_config.train_data.is_multilabel


def build_task(
    config: ExperimentConfig, logging_dir: str | None, *, needs_data: bool = True
) -> Any:
    """Returns the task of an experiment. Must be called in the strategy's scope.

    `logging_dir` is the run directory, which the task may write to; None if there is none.
    `needs_data` is whether remote datasets are copied to this machine. Raises `RunnerError` if the
    task cannot be imported.
    """
    config = localize(config, data=needs_data)
    if config.is_official:
        garden_config = config.for_task
        from orbit_runner.model_garden.loading import task_class

        cls = task_class(garden_config.task)
        if is_multitask_class(cls):
            return build_multitask(cls, garden_config.task, logging_dir)
        # The ranking task takes it, because its model creates its own optimizer.
        takes_trainer = "trainer_config" in inspect.signature(cls).parameters
        trainer_argument = {"trainer_config": garden_config.trainer} if takes_trainer else {}
        return cls(garden_config.task, logging_dir=logging_dir, **trainer_argument)
    assert config.task.name is not None
    return TASKS.get(config.task.name).load()(config.task, logging_dir=logging_dir)
