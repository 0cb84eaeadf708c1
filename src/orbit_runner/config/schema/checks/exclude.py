"""Checks of `train_data.exclude`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from orbit_runner.config.example_ids import EXCLUDE
from orbit_runner.config.schema.data import resolve_data_config
from orbit_runner.errors import DataError, SettingError

if TYPE_CHECKING:
    from orbit_runner.config.schema.experiment import ExperimentConfig

_UNSUPPORTED = (
    "is not supported by this task, which does not declare the order of its examples\n"
    "remove it, and leave the examples out of the files"
)


def exclude_problems(config: ExperimentConfig) -> Iterator[tuple[str, str]]:
    """Yields (dotted path, message) if the task cannot leave examples out."""
    task = config.task
    if getattr(getattr(task, "train_data", None), "exclude", "") and not task.excludes_examples:
        yield EXCLUDE, _UNSUPPORTED


def unknown_example_problems(config: ExperimentConfig) -> Iterator[tuple[str, str]]:
    """Yields (dotted path, message) for IDs that no example has. Reads the data."""
    task = config.task
    if not getattr(getattr(task, "train_data", None), "exclude", ""):
        return
    try:
        task.training_examples(resolve_data_config(task.train_data, config.runtime), None)
    except DataError as error:
        yield f"task.train_data.{error.field}", str(error)
    except SettingError as error:
        yield error.path, error.reason
