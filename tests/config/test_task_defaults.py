"""Defaults that a task declares for its experiments, below all files and flags."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from orbit_runner.config.errors import ConfigError
from orbit_runner.config.fingerprint import config_fingerprint
from orbit_runner.config.parsing.search_path import experiment_files
from orbit_runner.config.resolve import Request, ResolvedConfig, resolve
from orbit_runner.config.schema.base import config_class, field
from orbit_runner.config.schema.experiment import TaskConfig
from orbit_runner.config.serialize import to_yaml
from orbit_runner.registry import TASKS

Write = Callable[..., str]
TABLE = """
task: {name: tabular, target: species, train_data: {source: csv, input_path: penguins.csv}}
"""
OPTIMIZER = "trainer.optimizer_config"


@config_class
class _Defaults(TaskConfig):
    """A task that declares how it is trained."""

    width: int = field(1, help="a setting")
    names: Mapping[str, Any] | None = field(None, help="a mapping")

    @classmethod
    def experiment_defaults(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns a rate that depends on what is set."""
        return {
            "task.width": 4,
            "task.names": {"a": 1},
            "trainer.train_steps": 10,
            "trainer.early_stopping.patience": 3,
            f"{OPTIMIZER}.optimizer.type": "sgd",
            f"{OPTIMIZER}.learning_rate.type": "constant",
            f"{OPTIMIZER}.learning_rate.constant.learning_rate": 0.1 * given.get("task.width", 1),
        }


@pytest.fixture(autouse=True)
def registered():
    """Registers the task, and leaves the registry as it was."""
    TASKS.register("has_defaults", config=_Defaults, target="none:None")
    yield
    TASKS._entries.pop("has_defaults", None)


def _resolve(*texts: str) -> ResolvedConfig:
    return resolve(Request(params_overrides=("task.name=has_defaults", *texts)))


def test_defaults_of_the_task_hold_and_have_an_origin():
    resolved = _resolve()
    config: Any = resolved.config
    assert (config.task.width, config.trainer.train_steps) == (4, 10)
    assert dict(config.task.names) == {"a": 1}
    assert config.trainer.early_stopping.patience == 3
    assert str(resolved.origins["task.width"]) == "default of has_defaults"


def test_files_and_flags_override_them():
    resolved = _resolve(
        "task.width=2", "trainer.train_epochs=3", f"{OPTIMIZER}.optimizer.type=adam"
    )
    config: Any = resolved.config
    assert config.task.width == 2
    assert (config.trainer.train_steps, config.trainer.train_epochs) == (0, 3.0)
    assert config.trainer.optimizer_config.optimizer.type == "adam"
    assert config.trainer.optimizer_config.learning_rate.constant.learning_rate == 0.2


@pytest.mark.parametrize(
    ("texts", "patience", "steps"),
    [
        (("trainer: {early_stopping: null}",), None, 10),
        (("trainer: {early_stopping: {patience: 5}}", "trainer: {early_stopping: null}"), None, 10),
        (("trainer: null",), 3, 10),
        (("trainer: {train_steps: 7}", "trainer: null"), 3, 7),
        (("trainer: {early_stopping: {min_delta: 0.5}}",), 3, 10),
    ],
)
def test_null_turns_off_optional_sections_only(texts, patience, steps):
    trainer = _resolve(*texts).config.trainer
    assert (trainer.early_stopping and trainer.early_stopping.patience) == patience
    assert trainer.train_steps == steps


def test_defaults_are_those_of_the_task_that_a_flag_chooses():
    request = Request(
        experiment="breast_cancer", params_overrides=("task.name=has_defaults", "task.width=3")
    )
    config: Any = resolve(request).config
    assert dict(config.task.names) == {"a": 1}
    assert config.task.width == 3
    assert config.trainer.train_epochs == 40.0
    assert config.trainer.optimizer_config.optimizer.type == "adam"


def test_a_task_does_not_see_what_was_set_for_another_one():
    overrides = ("task: {name: tabular, width: 9}", "task.name=has_defaults")
    config: Any = resolve(Request(params_overrides=overrides)).config
    assert config.task.width == 4
    assert config.trainer.optimizer_config.learning_rate.constant.learning_rate == 0.1


def test_config_yaml_of_a_run_is_the_same_config(write):
    config = resolve(Request(experiment=write("table.yaml", TABLE))).config
    reloaded = resolve(Request(experiment=write("config.yaml", to_yaml(config)))).config
    assert reloaded.task == config.task
    assert reloaded.trainer == config.trainer
    assert config_fingerprint(reloaded) == config_fingerprint(config)


def test_a_path_and_a_target_are_a_whole_experiment_on_a_table(write):
    config: Any = resolve(Request(experiment=write("table.yaml", TABLE))).config
    assert config.task.validation_data.input_path == "penguins.csv"
    assert config.task.validation_data.source == "csv"
    assert dict(config.task.split.fractions) == {"train": 0.8, "validation": 0.2}
    assert config.task.model.name == "wide_deep"
    assert config.trainer.has_length
    assert config.trainer.best_checkpoint_export_subdir == "best"


@pytest.mark.parametrize(
    ("settings", "split", "validation"),
    [
        ("task.split.column=part", "part", ("csv", "penguins.csv", ";")),
        ("task.split=null", None, ("csv", "penguins.csv", ";")),
        ("task.validation_data.input_path=other.csv", None, ("csv", "other.csv", ";")),
        ("task.validation_data.data_dir=other", None, ("csv", "", ";")),
        ("task.validation_data.source=csv", None, ("csv", "", ",")),
        ("task.validation_data.delimiter='|'", "", ("csv", "penguins.csv", "|")),
    ],
)
def test_validation_rows_are_split_from_training_unless_there_are_others(
    write, settings, split, validation
):
    overrides = ("task.train_data.delimiter=';'", settings)
    request = Request(experiment=write("table.yaml", TABLE), params_overrides=overrides)
    task: Any = resolve(request).config.task
    assert (task.split and task.split.column) == split
    section = task.validation_data
    assert (section.source, section.input_path, section.delimiter) == validation


@pytest.mark.parametrize("name", ["breast_cancer", "diabetes"])
def test_shipped_experiments_on_tables_get_no_defaults(name):
    assert name in experiment_files()
    labels = {str(origin) for origin in resolve(Request(experiment=name)).origins.values()}
    assert not any(label.startswith("default of") for label in labels)


def test_a_schedule_that_is_chosen_gets_no_settings_of_another(write):
    rate = f"{OPTIMIZER}.learning_rate"
    request = Request(
        experiment=write("table.yaml", TABLE),
        params_overrides=(f"{rate}.type=constant", f"{rate}.constant.learning_rate=0.1"),
    )
    resolved = resolve(request)
    assert resolved.config.trainer.optimizer_config.learning_rate.type == "constant"


def test_a_table_without_a_source_is_one_problem():
    with pytest.raises(ConfigError) as caught:
        resolve(Request(params_overrides=("task.name=tabular", "task.target=y")))
    assert [problem.path for problem in caught.value.problems] == ["task.train_data.source"]
