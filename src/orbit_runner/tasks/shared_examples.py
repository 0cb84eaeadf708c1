"""Which validation examples of an experiment are also training examples. Imports no TensorFlow."""

from __future__ import annotations

import glob
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from orbit_runner.config.schema.data import resolve_data_config
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.task_data import TaskData, task_data
from orbit_runner.data.files import is_local, patterns
from orbit_runner.data.shared_examples import SharedExamples, shared_files
from orbit_runner.errors import DataError, SettingError

if TYPE_CHECKING:
    from orbit_runner.config.schema.base import Config

_OTHER_FILES, _OTHER_SPLIT = "name other files in validation_data", "set another tfds_split"
# A setting of this kind may select other examples of the same files.
_SELECTS = re.compile(r"(.*_)?(split|part|fold|shard|subset|sharding)s?(_.*)?")


def find_shared_examples(config: ExperimentConfig) -> SharedExamples | None:
    """Returns the validation examples that are also training examples, or None.

    None also if the data cannot be read, which the run reports elsewhere.
    """
    task = _with_seeds(config)
    data = task_data(task)
    try:
        if type(data).shared_examples is TaskData.shared_examples:
            return _shared_input_files(task)
        shared: SharedExamples | None = data.shared_examples()
        return shared
    except (DataError, SettingError, OSError):
        return None


def _with_seeds(config: ExperimentConfig) -> Config:
    """Returns the task with the seeds of the run, which decide what synthetic data are."""
    if config.is_official:
        return config.task
    sections = {
        name: resolve_data_config(getattr(config.task, name), config.runtime)
        for name in ("train_data", "validation_data")
    }
    return config.task.replace(**sections)


def _shared_input_files(task: Config) -> SharedExamples | None:
    """Returns the files that both sections name, unless a setting may select other examples.

    Only for tasks whose examples are not known: those of Model Garden, and those of users.
    """
    sections = [_settings(getattr(task, name, None)) for name in ("train_data", "validation_data")]
    if not all(sections):
        return None
    names = [f"{section.get('tfds_name')}:{section.get('tfds_split')}" for section in sections]
    if sections[0].get("tfds_name"):
        same = names[0] == names[1] and sections[0].get("tfds_split")
        return SharedExamples(1, 1, "splits", (names[1], names[0]), _OTHER_SPLIT) if same else None
    selected = {key for section in sections for key in section if _SELECTS.fullmatch(key)}
    if any(sections[0].get(key) != sections[1].get(key) for key in selected):
        return None
    files = [_files(section.get("input_path")) for section in sections]
    return shared_files(files[0], files[1], _OTHER_FILES)


def _settings(section: object) -> Mapping[str, object]:
    return section.as_dict() if hasattr(section, "as_dict") else {}


def _files(value: object) -> list[str]:
    try:
        named = patterns(value)
    except (TypeError, AttributeError, RecursionError):
        return []
    return [path for pattern in named if is_local(pattern) for path in sorted(glob.glob(pattern))]
