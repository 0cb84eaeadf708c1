"""Model Garden's multitask experiments: several tasks trained or evaluated on one model."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from official.core import base_task

from orbit_runner.config.parsing.value_checks import subdirectory_problem
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.errors import RunnerError, SettingError
from orbit_runner.utils.metrics import name_problem

if TYPE_CHECKING:
    import tf_keras
    from official.modeling.multitask import base_model, configs, multitask

TOTAL_LOSS = "total_loss"


@dataclasses.dataclass(frozen=True)
class EvalTask:
    """A task that a model is evaluated on."""

    task: base_task.Task
    steps: int | None  # Number of batches; None: `trainer.validation_steps`.


def is_multitask_class(cls: object) -> bool:
    """Returns whether a class that Model Garden registers for a config combines several tasks."""
    return hasattr(cls, "from_config") and hasattr(cls, "joint_train_step")


def build_multitask(
    cls: type[multitask.MultiTask], settings: configs.MultiTaskConfig, logging_dir: str | None
) -> multitask.MultiTask:
    """Builds the tasks of `task.task_routines`. Must be called in the strategy's scope.

    `cls` derives from Model Garden's `MultiTask`, and `settings` is its config. The result gets
    `settings` as `task_config` if it has no such attribute. Raises `SettingError` if there are no
    tasks or two have the same name, and `RunnerError` if Model Garden has no task for a config.
    """
    from orbit_runner.model_garden.loading import task_class

    names = [routine.task_name or routine.task_config.name for routine in settings.task_routines]
    if not names:
        raise SettingError(
            "task.task_routines", "is empty: there is nothing to train", code="not-set"
        )
    for number, (name, routine) in enumerate(zip(names, settings.task_routines, strict=True)):
        path = f"task.task_routines[{number}].task_name"
        _check_name(path, name, [TOTAL_LOSS, *names[:number]])
        task_class(routine.task_config)  # Imports the task, so that it is in the class's registry.
    multitask = cls.from_config(settings, logging_dir=logging_dir)
    if not hasattr(multitask, "task_config"):
        multitask.task_config = settings
    return multitask


def _check_name(path: str, name: str, taken: Iterable[str]) -> None:
    problem = subdirectory_problem(name)
    if problem:
        raise SettingError(path, f"got {name!r}, {problem}", code="wrong-type")
    if problem := name_problem(name):
        raise SettingError(path, problem, code="set-twice")
    if name in taken:
        raise SettingError(path, f"another task already has the name {name!r}", code="set-twice")


def build_eval_tasks(config: ExperimentConfig, logging_dir: str | None) -> dict[str, EvalTask]:
    """Builds the tasks of `eval_tasks`, by name. Must be called in the strategy's scope.

    Empty if the experiment evaluates the task that it trains. Raises `SettingError` if two have the
    same name, and `RunnerError` if Model Garden has no task for a config.
    """
    eval_tasks: dict[str, EvalTask] = {}
    for number, routine in enumerate(getattr(config.for_task, "eval_tasks", None) or ()):
        from orbit_runner.model_garden.loading import task_class

        settings = routine.task_config
        name = routine.task_name or settings.name or f"task_{number}"
        _check_name(f"eval_tasks[{number}].task_name", name, eval_tasks)
        task = task_class(settings)(settings, logging_dir=logging_dir, name=name)
        eval_tasks[name] = EvalTask(task, routine.eval_steps)
    return eval_tasks


def is_multitask(task: object) -> bool:
    """Returns whether a task combines several, as Model Garden's `MultiTask` does."""
    return hasattr(task, "joint_train_step") and isinstance(getattr(task, "tasks", None), Mapping)


class JointTask:
    """Gives a `MultiTask` the interface of a single task.

    `config` is the config of the `MultiTask`, of Model Garden's class.
    """

    loss = TOTAL_LOSS  # The key of the weighted sum of the losses.

    def __init__(self, multi: multitask.MultiTask, config: configs.MultiTaskConfig) -> None:
        self.multi = multi
        self.task_config = config
        self.tasks: Mapping[str, base_task.Task] = multi.tasks
        self.create_optimizer = multi.create_optimizer

    def build_model(self) -> tf_keras.Model | base_model.MultiTaskBaseModel:
        """Returns the model of all tasks.

        Raises `RunnerError` if the `MultiTask` has no method that builds it.
        """
        build = getattr(self.multi, "build_multitask_model", None)
        if build is None:
            raise RunnerError(
                f"{type(self.multi).__name__} must define build_multitask_model(), which returns "
                "the model of all tasks (a MultiTaskBaseModel, or one Keras model)",
                code="missing-method",
            )
        model = build()
        if hasattr(model, "sub_tasks"):
            model.build()
        return model

    def initialize(self, model: tf_keras.Model | base_model.MultiTaskBaseModel) -> None:
        """Initializes the weights of the model of all tasks, from `init_checkpoint` if set."""
        if hasattr(model, "sub_tasks"):
            model.initialize()
        if self.task_config.init_checkpoint:
            base_task.Task.initialize(self, model)


def model_of(model: tf_keras.Model | base_model.MultiTaskBaseModel, task: str) -> tf_keras.Model:
    """Returns the part of a `MultiTaskBaseModel` for a task, or `model` if all tasks share it.

    `task` is the name of the task. Raises `RunnerError` if the model has parts, but none for it.
    """
    parts = getattr(model, "sub_tasks", None)
    if parts is None:
        return model
    if task not in parts:
        raise RunnerError(
            f"the model has no part for the task {task!r}; it has: {list(parts)}",
            code="unknown-name",
        )
    return parts[task]
