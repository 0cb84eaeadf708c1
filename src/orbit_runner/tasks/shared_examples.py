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

# A split of TensorFlow Datasets, or an interval of it in percent, such as train[:80%].
_SLICE = re.compile(r"(?P<name>\w+)(\[((?P<start>\d+)%)?:((?P<stop>\d+)%)?\])?")
_OTHER_FILES = "name other files in validation_data"
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
    name, *_ = names = [str(section.get("tfds_name") or "") for section in sections]
    if name:
        splits = [str(section.get("tfds_split") or "") for section in sections]
        if names[0] == names[1] and _overlap(*splits):
            text = f"tfds:{name}, split {{}}"
            places = (text.format(splits[1]), text.format(splits[0]))
            return SharedExamples(1, 1, "splits", places, "set another tfds_split")
        return None
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


def _overlap(left: str, right: str) -> bool:
    """Returns whether two splits of TensorFlow Datasets have examples in common, if it is known."""
    if left == right:
        return bool(left)
    parts = [[_SLICE.fullmatch(part.strip()) for part in text.split("+")] for text in (left, right)]
    return any(
        left_slice is not None
        and right_slice is not None
        and left_slice["name"] == right_slice["name"]
        and max(int(left_slice["start"] or 0), int(right_slice["start"] or 0))
        < min(int(left_slice["stop"] or 100), int(right_slice["stop"] or 100))
        for left_slice in parts[0]
        for right_slice in parts[1]
    )
