"""Creates the task of a config: one from the registry, or one of Model Garden's."""

from __future__ import annotations

import inspect
from typing import Any

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.registry import TASKS
from orbit_runner.storage.staged_config import localize
from orbit_runner.tasks.multitask import is_several, tasks_trained


def build_task(config: ExperimentConfig, logging_dir: str | None) -> Any:
    """Returns the task of an experiment. Must be called in the strategy's scope.

    `logging_dir` is the run directory, which the task may write to; None if there is none. Raises
    `RunnerError` if the task cannot be imported.
    """
    config = localize(config)
    if config.is_official:
        taken = config.for_task
        from orbit_runner.model_garden.loading import task_class

        cls = task_class(taken.task)
        if is_several(cls):
            return tasks_trained(cls, taken.task, logging_dir)
        # Such as the ranking task, whose model creates its own optimizer.
        takes_trainer = "trainer_config" in inspect.signature(cls).parameters
        more = {"trainer_config": taken.trainer} if takes_trainer else {}
        return cls(taken.task, logging_dir=logging_dir, **more)
    assert config.task.name is not None
    return TASKS.get(config.task.name).load()(config.task, logging_dir=logging_dir)
