"""Tasks register what they read, which commands look at without TensorFlow."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbit_runner import DataError, TaskConfig, TaskData, tasks
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.task_data import declares_data, task_data
from orbit_runner.registry import TASKS, register_task
from orbit_runner.tasks.recommendation.config import RecommendationConfig
from orbit_runner.tasks.recommendation.data import RecommendationData


@pytest.fixture(autouse=True)
def _registry() -> Iterator[None]:
    """Leaves only the tasks of the package, also if other tests have registered theirs."""
    before = dict(TASKS._entries)
    for name, entry in before.items():
        if not str(entry.target).startswith("orbit_runner."):
            del TASKS._entries[name]
    yield
    TASKS._entries.clear()
    TASKS._entries.update(before)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Config(TaskConfig):
    """A task of a user."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Ratings(RecommendationConfig):
    """A task of a user that adds to one of this package."""


class _Data(TaskData):
    def files(self) -> None:
        return None


class _OtherData(_Data):
    pass


def test_data_of_every_task_is_looked_at_without_tensorflow() -> None:
    code = (
        "import sys; from orbit_runner.registry import TASKS;"
        "print(len([entry.load_data() for entry in TASKS.registered()]));"
        "assert not {'tensorflow', 'tf_keras'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    count = len([*Path(tasks.__file__).parent.glob("*/data.py")])
    assert (done.returncode, done.stdout.strip()) == (0, str(count)), done.stderr


def test_task_without_data_is_not_checked() -> None:
    register_task("mine", config=_Config, task="none:None")
    config = _Config(name="mine")

    assert not declares_data(config)
    assert [*task_data(config).problems()] == []
    assert task_data(config).files() is None


def test_config_names_its_data() -> None:
    register_task("mine", config=_Config, data=_Data, task="none:None")
    register_task("other", config=_Config, data=_OtherData, task="none:None")

    assert type(task_data(_Config(name="mine"))) is _Data
    assert type(task_data(_Config(name="other"))) is _OtherData
    experiment = ExperimentConfig(task=_Config(name="other"))
    assert type(experiment.data) is _OtherData
    assert experiment.data.config is experiment.task


def test_subclass_of_a_config_has_the_data_of_its_base_class() -> None:
    register_task("mine", config=_Ratings, task="none:None")
    assert type(task_data(_Ratings(name="mine"))) is RecommendationData

    register_task("own", config=_Ratings, data=_Data, task="none:None")
    assert type(task_data(_Ratings(name="own"))) is _Data


def test_error_of_a_dataset_names_a_setting_of_its_section() -> None:
    error = DataError("is missing", field="data_dir")
    assert task_data(_Config()).setting_of_error("train_data", error) == "train_data.data_dir"
