"""Creates the task of a config: one from the registry, or one of Model Garden's."""

from __future__ import annotations

import inspect
from typing import Any

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.registry import TASKS
from orbit_runner.storage.staging import localize
from orbit_runner.tasks.multitask import build_multitask, is_multitask_class


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
