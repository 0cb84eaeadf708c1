"""The section `trackers`: names, arguments and packages."""

# ruff: noqa: E501 (one line a case)
from __future__ import annotations

import sys
from pathlib import Path

import pytest

from orbit_runner.config.errors import ConfigError
from orbit_runner.config.fingerprint import config_fingerprint
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.serialize import to_yaml
from tests.support.problems import check


def _config(value: str) -> ExperimentConfig:
    flags = (("--trackers", "trackers", value),)
    return resolve(Request(experiment="digits", flags=flags)).config


def test_default_is_tensorboard_alone():
    config = resolve(Request(experiment="digits")).config
    assert [tracker.class_name for tracker in config.trackers] == ["tensorboard"]


@pytest.mark.parametrize(
    "value",
    [
        "[]",
        "[tensorboard, mlflow, wandb]",
        "[{class_name: mlflow, arguments: {experiment_name: x, tracking_uri: 'http://host:5000'}}]",
        "[{class_name: my_package.MyTracker, arguments: {anything: [1, {a: b}]}}]",
    ],
)
def test_trackers_survive_yaml_and_do_not_change_the_fingerprint(value, tmp_path):
    config = _config(value)
    (tmp_path / "again.yaml").write_text(to_yaml(config))

    reloaded = resolve(Request(experiment=str(tmp_path / "again.yaml"))).config

    assert reloaded.trackers == config.trackers
    plain = resolve(Request(experiment="digits")).config
    assert config_fingerprint(config) == config_fingerprint(plain)


@pytest.mark.parametrize(
    ("value", "path", "message"),
    [
        ("[mlfow]", "trackers[0].class_name", "unknown tracker 'mlfow'; did you mean 'mlflow'?"),
        ("[{arguments: {}}]", "trackers[0].class_name", "unknown tracker ''"),
        ("[my-package.X]", "trackers[0].class_name", "expected a module and a class"),
        ("[{class_name: mlflow, arguments: {tracking_uri: 'https://a:b@host'}}]", "trackers[0].arguments", "MLFLOW_TRACKING_PASSWORD"),
        ("[{class_name: wandb, arguments: {tags: a}}]", "trackers[0].arguments", "expected a list, each item a string"),
        ("[{class_name: wandb, arguments: {mode: ofline}}]", "trackers[0].arguments", "expected 'online' or 'offline' or null"),
    ],
)  # fmt: skip
def test_wrong_tracker_is_a_config_error(value, path, message):
    with pytest.raises(ConfigError) as caught:
        _config(value)
    (problem,) = caught.value.problems
    assert problem.path == path
    assert message in problem.message


def test_missing_package_is_reported_before_training(monkeypatch, tmp_path):
    name = "wandb"
    config = _config(f"[tensorboard, {name}]")
    assert [*config.preflight("train")] == []  # Imports the other packages, which are then hidden.
    (tmp_path / name).mkdir()  # A directory of that name, such as one that `wandb` writes.
    monkeypatch.setattr(sys, "path", [str(tmp_path), *_without(name)])
    for module in [
        module_name for module_name in sys.modules if module_name.partition(".")[0] == name
    ]:
        monkeypatch.delitem(sys.modules, module)

    (problem,) = config.preflight("train")

    check([problem], ("missing-package", "trackers[1].class_name"))


def _without(name: str) -> list[str]:
    return [path for path in sys.path if not (Path(path or ".") / name / "__init__.py").exists()]


def test_missing_module_of_an_own_tracker_is_reported():
    (problem,) = _config("[no_such_package.MyTracker]").preflight("train")
    check([problem], ("import-failed", "trackers[0].class_name"))
