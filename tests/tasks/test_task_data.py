"""Tasks register what they read, which commands look at without TensorFlow."""

import dataclasses

import pytest

from orbit_runner import DataError, TaskConfig, TaskData
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.task_data import declares_data, task_data
from orbit_runner.registry import TASKS, register_task
from orbit_runner.tasks.image_classification.config import ImageClassificationConfig
from orbit_runner.tasks.image_classification.data_config import ImageDataConfig, MixupAndCutmix
from orbit_runner.tasks.recommendation.config import RecommendationConfig
from orbit_runner.tasks.recommendation.data import RecommendationData
from orbit_runner.tasks.tabular.config import TabularConfig
from orbit_runner.tasks.translation.config import TranslationConfig, TranslationDataConfig


@pytest.fixture(autouse=True)
def _registry():
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
    def files(self):
        return None


class _OtherData(_Data):
    pass


def test_task_without_data_is_not_checked():
    register_task("mine", config=_Config, task="none:None")
    config = _Config(name="mine")

    assert not declares_data(config)
    assert [*task_data(config).problems()] == []
    assert task_data(config).files() is None


def test_config_names_its_data():
    register_task("mine", config=_Config, data=_Data, task="none:None")
    register_task("other", config=_Config, data=_OtherData, task="none:None")

    assert type(task_data(_Config(name="mine"))) is _Data
    assert type(task_data(_Config(name="other"))) is _OtherData
    experiment = ExperimentConfig(task=_Config(name="other"))
    assert type(experiment.data) is _OtherData
    assert experiment.data.config is experiment.task


def test_subclass_of_a_config_has_the_data_of_its_base_class():
    register_task("mine", config=_Ratings, task="none:None")
    assert type(task_data(_Ratings(name="mine"))) is RecommendationData

    register_task("own", config=_Ratings, data=_Data, task="none:None")
    assert type(task_data(_Ratings(name="own"))) is _Data


_MIXED = ImageDataConfig(source="digits", mixup_and_cutmix=MixupAndCutmix(mixup_alpha=0.2))
_TEXT_FILES = TranslationDataConfig(source="parallel_text")


@pytest.mark.parametrize(
    ("config", "packages"),
    [
        (ImageClassificationConfig(), []),
        (ImageClassificationConfig(train_data=_MIXED), ["scipy"]),
        (TabularConfig(), []),
        (TranslationConfig(train_data=_TEXT_FILES, validation_data=_TEXT_FILES), ["sentencepiece"]),
        (_Ratings(), []),
    ],
)
def test_data_names_the_packages_that_compute_it(config, packages):
    assert [*task_data(config).packages()] == packages


def test_error_of_a_dataset_names_a_setting_of_its_section():
    error = DataError("is missing", field="data_dir")
    assert task_data(_Config()).setting_of_error("train_data", error) == "train_data.data_dir"
