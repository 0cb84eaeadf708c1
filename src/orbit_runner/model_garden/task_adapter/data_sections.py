"""What a run reads of a task's data sections, which tasks of Model Garden may not have."""

from __future__ import annotations

from typing import Any

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.errors import SettingError


def section_of(task: Any, name: str, path: str = "task") -> Any:
    """Returns a data section of a task's config.

    Args:
        task: The config, as the task takes it.
        name: `train_data` or `validation_data`.
        path: The dotted path of the config.

    Raises:
        SettingError: The task has none.
    """
    section = getattr(task, name, None)
    if section is None:
        raise SettingError(f"{path}.{name}", "this task has none; choose another --mode")
    return section


def num_examples(task: Any, data: Any) -> int | None:
    """Returns the size of a data set, None from tasks that do not tell (Model Garden's).

    Args:
        task: The task.
        data: The section of the config.
    """
    count = getattr(task, "num_examples", None)
    return count(data) if callable(count) else None


def steps_per_epoch(task: Any, data: Any) -> float:
    """Returns batches that show each example once, 0 where nobody tells.

    Args:
        task: The task.
        data: The section of the config; None where it has none.
    """
    if data is None:
        return 0.0
    # Tasks whose batches differ in size, such as those of so many tokens, say it themselves.
    own = getattr(task, "steps_per_epoch", None)
    if callable(own):
        return float(own(data))
    return (num_examples(task, data) or 0) / (getattr(data, "global_batch_size", 0) or 1)


def validation_steps(task: Any, data: Any, asked: int) -> int:
    """Returns the batches of an evaluation; -1 for all there are, where nobody tells how many.

    Args:
        task: The task.
        data: The section of the config; None where it has none.
        asked: `trainer.validation_steps`.
    """
    size = None if data is None else num_examples(task, data)
    if size is None:
        return asked
    batch = data.global_batch_size
    there = size // batch if data.drop_remainder else -(-size // batch)
    return there if asked < 0 else min(asked, there)


def has_services(config: ExperimentConfig) -> bool:
    """Returns whether tf.data services make the batches of training.

    Args:
        config: The experiment.
    """
    data = getattr(config.for_task.task, "train_data", None)
    enabled = getattr(data, "enable_tf_data_service", False)
    return bool(config.runtime.tf_data_service or enabled)
