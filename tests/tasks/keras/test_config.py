"""The config of the task `keras`: checked without importing TensorFlow."""

import os
import sys

import pytest

from orbit_runner.config.errors import ConfigError
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.jobs.preflight import check_before_start
from tests.support.problems import raises
from tests.support.processes import runner

_NETS = """
import tensorflow as tf

def build(units: int = 8, rate: float = 0.5, activation="relu"):
    return None

def needs(width: int):
    return None
"""
_DATA = """
import numpy as np

def load(count: int = 10):
    return np.zeros([count, 4]), np.zeros([count], int)

def bad():
    return np.array([[1.0, float("nan")]]), np.zeros([1], int)

def missing():
    raise FileNotFoundError("no file /data/x.csv")
"""
_EXPERIMENT = """
task:
  name: keras
  model: checked_pkg.nets:build
  loss: mse
  train_data: {source: arrays, function: checked_pkg.data:load, global_batch_size: 4}
  validation_data:
    source: arrays
    function: checked_pkg.data:load
    arguments: {count: 5}
    global_batch_size: 4
trainer:
  train_steps: 3
  optimizer_config:
    optimizer: {type: adam}
    learning_rate: {type: constant, constant: {learning_rate: 0.01}}
"""


@pytest.fixture
def experiment(here, monkeypatch):
    monkeypatch.syspath_prepend(str(here))
    folder = here / "checked_pkg"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "nets.py").write_text(_NETS)
    (folder / "data.py").write_text(_DATA)
    path = here / "experiment.yaml"
    path.write_text(_EXPERIMENT)
    yield path
    for name in [name for name in sys.modules if name.startswith("checked_pkg")]:
        del sys.modules[name]


def _resolved(path, *overrides):
    return resolve(Request(experiment=str(path), params_overrides=overrides))


def test_arguments_of_the_function_are_settings_with_its_defaults(experiment):
    config = _resolved(experiment, "task.model.arguments.units=16").config

    model = config.task.model
    assert model.build == "checked_pkg.nets:build"
    assert {**model.arguments} == {"units": 16, "rate": 0.5, "activation": "relu"}


def test_another_function_replaces_the_arguments(experiment):
    config = _resolved(
        experiment, "task.model.arguments.units=16", "task.model=checked_pkg.nets:needs"
    ).config

    assert config.task.model.arguments == {}


@pytest.mark.parametrize(
    ("override", "path", "code"),
    [
        ("task.model.arguments.unit=3", "task.model.arguments.unit", "bad-arguments"),
        ("task.model.arguments.units=many", "task.model.arguments.units", "bad-arguments"),
        ("task.model=checked_pkg.nets:needs", "task.model.arguments.width", "bad-arguments"),
        ("task.model=checked_pkg.nets:bild", "task.model.build", "import-failed"),
        ("task.model=checked_pkg.nets", "task.model.build", "import-failed"),
        ("task.model=__main__:lost", "task.model.build", "import-failed"),
        ("task.loss={class_name: Huber, confg: {delta: 2}}", "task.loss", "unknown-name"),
        ("task.loss=[mse, [3]]", "task.loss", "wrong-type"),
        ("task.metrics=[mae, {class_name: AUC, curve: PR}]", "task.metrics[1]", "unknown-name"),
        ("task.weighted_metrics=[{class_name: AUC, config: PR}]", "task.weighted_metrics[0]",
         "wrong-type"),
        ("task.metrics=[checked_pkg.nets:Metric]", "task.metrics[0]", "import-failed"),
        ("task.train_data.source=array", "task.train_data.source", "not-allowed"),
        ("task.train_data.function=checked_pkg.data:lod", "task.train_data.function",
         "import-failed"),
        ("task.train_data.arguments.size=3", "task.train_data.arguments.size", "bad-arguments"),
        ("task.train_data.function=checked_pkg.data:bad", "task.train_data.function", "bad-data"),
        ("task.train_data.function=checked_pkg.data:missing", "task.train_data.function",
         "bad-data"),
        ("task.train_data.input_path=a.npz", "task.train_data.input_path", "no-effect"),
        ("task.train_data={source: npz, function: ''}", "task.train_data.input_path", "not-set"),
        ("task.validation_split=0.2", "task.validation_split", "conflict"),
    ],
)  # fmt: skip
def test_mistake_is_reported_with_its_setting_and_origin(experiment, override, path, code):
    folder = experiment.parent / "run"
    with pytest.raises(ConfigError) as caught:
        check_before_start(_resolved(experiment, override), "train_and_eval", folder)
    (problem,) = [problem for problem in caught.value.problems if problem.path == path]

    assert problem.code == code
    # A setting that is missing has the origin of its section.
    is_missing = code == "not-set"
    assert str(problem.origin).startswith(
        f"{experiment}:6" if is_missing else "--params_override[0]"
    )


@pytest.mark.parametrize(
    ("override", "path"),
    [
        ("task.optimizer=adam", "task.optimizer"),
        ("task.optimizer={class_name: SGD}", "task.optimizer"),
        ("trainer.optimizer_config.learning_rate.type=null",
         "trainer.optimizer_config.learning_rate.type"),
        ("trainer.optimizer_config.optimizer.type=null", "trainer.optimizer_config.learning_rate"),
    ],
)  # fmt: skip
def test_optimizer_is_set_once(experiment, override, path):
    codes = {"task.optimizer": "conflict", "trainer.optimizer_config.learning_rate": "no-effect"}
    with raises(codes.get(path, "not-set"), path, kind=ConfigError):
        _resolved(experiment, override)


@pytest.mark.parametrize(
    ("optimizer", "code"),
    [
        ("checked_pkg.nets:Sgd", "import-failed"),
        ("{class_name: SGD, learning_rate: 0.1}", "unknown-name"),
        ("{class_name: SGD, config: 0.1}", "wrong-type"),
    ],
)
def test_mistake_in_the_optimizer(experiment, optimizer, code):
    experiment.write_text(_EXPERIMENT.partition("  optimizer_config:")[0])
    assert _resolved(experiment).config.task.optimizer == ""
    assert _resolved(experiment, "task.optimizer=adam").config.task.optimizer == "adam"
    with raises(code, "task.optimizer", kind=ConfigError):
        check_before_start(
            _resolved(experiment, f"task.optimizer={optimizer}"), "train", experiment.parent / "run"
        )


@pytest.mark.slow
def test_mistakes_are_reported_before_tensorflow_is_imported(experiment):
    (experiment.parent / "tensorflow.py").write_text("raise SystemExit('it was imported')\n")
    path = os.pathsep.join([str(experiment.parent), os.environ.get("PYTHONPATH", "")])
    for arguments, code in (
        (["show", f"--experiment={experiment}"], 0),
        (["show", "--check", str(experiment)], 0),
        ([f"--experiment={experiment}", "--task.model.arguments.unit=3", "--model_dir=r"], 2),
    ):
        completed = runner(*arguments, env={**os.environ, "PYTHONPATH": path})
        assert completed.returncode == code, completed.stderr
        assert "it was imported" not in completed.stderr
