"""Reads the data sections of a task's config, which tasks of Model Garden may lack."""

from __future__ import annotations

from typing import Any

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.errors import SettingError


def section_of(task: Any, name: str, path: str = "task") -> Any:
    """Returns a data section, `train_data` or `validation_data`, of a task's config.

    `path` is the dotted path of the config. Raises `SettingError` if there is no such section.
    """
    section = getattr(task, name, None)
    if section is None:
        raise SettingError(
            f"{path}.{name}", "the task does not have this section; use another --mode"
        )
    return section


def has_services(config: ExperimentConfig) -> bool:
    """Returns whether tf.data services make the training batches."""
    data = getattr(config.for_task.task, "train_data", None)
    enabled = getattr(data, "enable_tf_data_service", False)
    return bool(config.runtime.tf_data_service or enabled)
