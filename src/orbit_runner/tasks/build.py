"""Makes the task of a config: one of the registry's, or one of Model Garden's."""

from __future__ import annotations

from typing import Any

from orbit_runner.config.experiment import ExperimentConfig
from orbit_runner.registry import TASKS


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
    taken = config.for_task
    if taken is not config:
        from orbit_runner.official.loading import task_class

        return task_class(taken.task)(taken.task, logging_dir=logging_dir)
    assert config.task.name is not None
    return TASKS.get(config.task.name).load()(config.task, logging_dir=logging_dir)
