"""Makes the task of a config: one of the registry's, or one of Model Garden's."""

from __future__ import annotations

import inspect
from typing import Any

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.registry import TASKS
from orbit_runner.storage.staged_config import localize
from orbit_runner.tasks.multitask import is_several, tasks_trained


def build_task(config: ExperimentConfig, logging_dir: str | None) -> Any:
    """Makes a task; to be called in the strategy's scope.

    Args:
        config: The experiment.
        logging_dir: The folder of the run, where the task may write; None where there is none.

    Returns:
        The task.

    Raises:
        RunnerError: It cannot be imported.
    """
    config = localize(config)
    if config.is_official:
        taken = config.for_task
        from orbit_runner.model_garden.loading import task_class

        cls = task_class(taken.task)
        if is_several(cls):
            return tasks_trained(cls, taken.task, logging_dir)
        # Such as those for ranking, whose model brings its own optimizer.
        takes_trainer = "trainer_config" in inspect.signature(cls).parameters
        more = {"trainer_config": taken.trainer} if takes_trainer else {}
        return cls(taken.task, logging_dir=logging_dir, **more)
    assert config.task.name is not None
    return TASKS.get(config.task.name).load()(config.task, logging_dir=logging_dir)
