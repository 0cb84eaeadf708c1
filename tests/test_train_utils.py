"""`train_utils` in place of Model Garden's: the same configs, with our error messages."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import pytest
from official.core import config_definitions
from official.core import train_utils as official_train_utils
from official.utils.testing import mock_task

from orbit_runner import train_utils
from orbit_runner.config.errors import ConfigError
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.model_garden.driver.params import to_runner_config
from tests.support import registered_examples  # noqa: F401 - registers experiments
from tests.support.problems import raises
from tests.support.toy import toy_config

FILE = """\
trainer:
  train_steps: 7
  summary_interval: 500
  optimizer_config: {optimizer: {type: sgd}, learning_rate: {type: constant}}
runtime: {distribution_strategy: tpu, tpu: of_the_file}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.yaml"
    path.write_text(FILE)
    return path


def options(**kwargs: Any) -> Any:
    return train_utils.ParseConfigOptions(**{"experiment": "mock", "config_file": [], **kwargs})


def parse(flags_obj: Any, **kwargs: Any) -> Any:
    return train_utils.parse_configuration(flags_obj, print_return=False, **kwargs)


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"params_override": "trainer.train_steps=5,trainer.validation_interval=2"},
        {"params_override": '{"trainer": {"steps_per_loop": 10, "eval_tf_while_loop": true}}'},
        {"params_override": "task:\n  train_data:\n    input_path: a,b\n"},
        {"params_override": "FILE"},
        {"config_file": ["FILE"], "tpu": "of_the_flag"},
        {"config_file": ["FILE"], "params_override": "runtime.tpu=last", "tpu": "of_the_flag"},
        {"tf_data_service": "grpc://host:1"},
        {
            "tf_data_service": "grpc://host:1",
            "params_override": "task.train_data.tf_data_service_address=null",
        },
        {"experiment": "orbit_runner_test_slices"},
        {
            "experiment": "orbit_runner_test_slices",
            "params_override": "runtime.num_slices=2,task.shape[0]=7,task.shape[1]=8",
        },
        {
            "experiment": "orbit_runner_test_slices",
            "params_override": '{"task": {"shape": [3, 4], "sizes": []}}',
        },
        {
            "experiment": "orbit_runner_test_slices",
            "params_override": {"task": {"shape": (1, 2), "sizes": (3,)}},
        },
        {"experiment": "orbit_runner_test_restricted"},
        {"experiment": "orbit_runner_test_plain", "tpu": "fake"},
        {
            "experiment": "orbit_runner_test_plain",
            "tpu": "mine",
            "params_override": "task.model.model_id=new,task.model.head.units=7,"
            "trainer.train_steps=10,trainer.validation_steps=11,notes.author=me",
        },
    ],
    ids=str,
)
def test_parsed_configs_equal_those_of_model_garden(given: dict[str, Any], file: Path) -> None:
    def filled(value: Any) -> Any:
        if isinstance(value, list):
            return [filled(item) for item in value]
        return value.replace("FILE", str(file)) if isinstance(value, str) else value

    flags = options(**{name: filled(value) for name, value in given.items()})
    expected = official_train_utils.parse_configuration(flags, print_return=False)
    found = parse(flags)
    assert type(found) is type(expected)
    assert type(found.task) is type(expected.task)
    assert repr(found.as_dict()) == repr(expected.as_dict())
    assert found == expected


def test_tpu_of_a_config_file_is_kept_without_the_flag(file: Path) -> None:
    """Model Garden overwrites it with a flag that was not given."""
    assert parse(options(config_file=[str(file)])).runtime.tpu == "of_the_file"


def test_flags_may_be_any_object_with_attributes(file: Path) -> None:
    flags = types.SimpleNamespace(experiment="official/mock", config_file=str(file))
    flags.params_override = {"trainer": {"train_steps": 9}}
    assert parse(flags).trainer.train_steps == 9


@pytest.mark.parametrize(
    ("given", "code", "path"),
    [
        ({"experiment": "mokc"}, "unknown-name", "--experiment"),
        ({"experiment": None}, "not-set", "--experiment"),
        ({"params_override": "trainer.train_step=5"}, "unknown-setting", "trainer.train_step"),
        ({"params_override": "trainer.train_steps=many"}, "wrong-type", "trainer.train_steps"),
        (
            {"params_override": "{task: {init_checkpoint: a, init_checkpoint: b}}"},
            "set-twice",
            "task.init_checkpoint",
        ),
        ({"params_override": "{task: ["}, "bad-syntax", ""),
        ({"config_file": ["no.yaml"]}, "missing-file", ""),
        (
            {"params_override": "runtime.worker_hosts=a:1,runtime.num_gpu=2"},
            "unknown-setting",
            "runtime.num_gpu",
        ),
        (
            {
                "experiment": "orbit_runner_test_restricted",
                "params_override": "trainer.train_steps=3",
            },
            "conflict",
            "trainer.train_steps",
        ),
        (
            {
                "experiment": "orbit_runner_test_slices",
                "params_override": "runtime.num_slice=2",
            },
            "unknown-setting",
            "runtime.num_slice",
        ),
        (
            {
                "experiment": "orbit_runner_test_slices",
                "params_override": "task.shape[1]=8",
            },
            "wrong-type",
            "task.shape",
        ),
        (
            {
                "experiment": "orbit_runner_test_plain",
                "params_override": "task.model.head.unit=2",
            },
            "unknown-setting",
            "task.model.head.unit",
        ),
    ],
    ids=str,
)
def test_config_mistakes_are_rejected(given: dict[str, Any], code: str, path: str) -> None:
    with raises(code, path):
        parse(options(**given))


def test_mistakes_from_all_sources_are_reported_together(tmp_path: Path) -> None:
    path = tmp_path / "b.yaml"
    path.write_text("trainer: {train_stepz: 1}\n")
    with pytest.raises(ConfigError) as caught:
        parse(options(config_file=[str(path)], params_override="task.init_checkpointt=x"))
    assert len(caught.value.problems) == 2
    assert f"{path}:1" in str(caught.value)


def test_config_is_locked_unless_lock_return_is_false() -> None:
    with pytest.raises(ValueError, match="locked"):
        parse(options()).override({"task": {"init_checkpoint": "a"}})
    free = parse(options(), lock_return=False)
    free.override({"task": {"init_checkpoint": "a"}})
    assert free.task.init_checkpoint == "a"


def test_config_is_logged_unless_print_return_is_false(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="absl"):
        parse(options())
        assert not caplog.records
        train_utils.parse_configuration(options())
    assert "Final experiment parameters:" in caplog.text
    assert "'init_checkpoint': ''" in caplog.text


def test_params_yaml_is_identical_to_that_of_model_garden(file: Path, tmp_path: Path) -> None:
    params = parse(options(config_file=[str(file)]))
    official_train_utils.serialize_config(params, str(tmp_path / "theirs"))
    train_utils.serialize_config(params, str(tmp_path / "ours"))
    text = (tmp_path / "ours" / "params.yaml").read_text()
    assert text == (tmp_path / "theirs" / "params.yaml").read_text()
    again = config_definitions.ExperimentConfig(task=mock_task.MockTaskConfig())
    again.override(parse(options(params_override=str(tmp_path / "ours/params.yaml"))).as_dict())
    assert again.trainer.train_steps == 7


def test_written_config_loads_in_both_runners(tmp_path: Path) -> None:
    config = resolve(Request(experiment="official/mock")).config
    train_utils.serialize_config(config, str(tmp_path))
    flags = options(params_override=str(tmp_path / "params.yaml"))
    assert parse(flags) == official_train_utils.parse_configuration(flags, print_return=False)
    own = toy_config()
    train_utils.serialize_config(own, str(tmp_path / "own"))
    assert resolve(Request(config_files=(str(tmp_path / "own/params.yaml"),))).config == own


def test_serialize_config_requires_model_dir() -> None:
    with raises("not-set", "--model_dir"):
        train_utils.serialize_config(parse(options()), None)  # type: ignore[arg-type]


def test_other_functions_are_model_gardens_own() -> None:
    names = [name for name in vars(official_train_utils) if not name.startswith("__")]
    assert {"save_gin_config", "create_trainer", "ExperimentParser", "remove_ckpts"} <= {*names}
    assert all(hasattr(train_utils, name) for name in names)
    assert train_utils.create_trainer is official_train_utils.create_trainer
    assert train_utils.parse_configuration is not official_train_utils.parse_configuration
    with pytest.raises(AttributeError):
        train_utils.no_such_thing  # noqa: B018


def test_config_without_declared_sections_is_accepted_by_the_runner() -> None:
    config = to_runner_config(parse(options(experiment="orbit_runner_test_plain")))
    assert config.trainer.train_steps == 2
    assert config.for_task.task.model.head.units == 3
