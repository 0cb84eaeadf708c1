"""The config of the task `keras`: checked without importing TensorFlow."""

import os
import sys

import pytest
import yaml

from orbit_runner.config.errors import ConfigError
from orbit_runner.config.fingerprint import config_fingerprint
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.serialize import to_yaml
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


def _problems(path, *overrides):
    with pytest.raises(ConfigError) as caught:
        check_before_start(_resolved(path, *overrides), "train_and_eval", path.parent / "run")
    return [(p.path, p.message.split("\n")[0], str(p.origin)) for p in caught.value.problems]


def test_arguments_of_the_function_are_settings_with_its_defaults(experiment):
    config = _resolved(experiment, "task.model.arguments.units=16").config

    model = config.task.model
    assert model.build == "checked_pkg.nets:build"
    assert {**model.arguments} == {"units": 16, "rate": 0.5, "activation": "relu"}


def test_written_config_has_the_same_fingerprint(experiment):
    config = _resolved(experiment).config
    rewritten = experiment.with_name("again.yaml")
    rewritten.write_text(to_yaml(config))

    assert config_fingerprint(_resolved(rewritten).config) == config_fingerprint(config)
    assert yaml.safe_load(rewritten.read_text())["task"]["model"]["arguments"]["rate"] == 0.5


def test_another_function_replaces_the_arguments(experiment):
    config = _resolved(
        experiment, "task.model.arguments.units=16", "task.model=checked_pkg.nets:needs"
    ).config

    assert config.task.model.arguments == {}


@pytest.mark.parametrize(
    ("override", "path", "message"),
    [
        ("task.model.arguments.unit=3", "task.model.arguments.unit",
         "checked_pkg.nets:build: unknown argument 'unit'; did you mean 'units'?"),
        ("task.model.arguments.units=many", "task.model.arguments.units",
         "checked_pkg.nets:build: got 'many', expected int"),
        ("task.model=checked_pkg.nets:needs", "task.model.arguments.width",
         "checked_pkg.nets:needs: the argument 'width' is required; set it"),
        ("task.model=checked_pkg.nets:bild", "task.model.build",
         "checked_pkg.nets has no function or class 'bild'; did you mean 'build'?"),
        ("task.model=checked_pkg.nets", "task.model.build",
         "got 'checked_pkg.nets', expected a module and a name in it: my_package.nets:build"),
        ("task.model=__main__:lost", "task.model.build",
         "__main__:lost was passed by a script or notebook, and only that finds it"),
        ("task.loss={class_name: Huber, confg: {delta: 2}}", "task.loss",
         "unknown key 'confg'; did you mean 'config'?"),
        ("task.loss=[mse, [3]]", "task.loss",
         "got ['mse', [3]], expected a string or a list, each item a string or a section or null "
         "or a section"),
        ("task.metrics=[mae, {class_name: AUC, curve: PR}]", "task.metrics[1]",
         "unknown key 'curve'"),
        ("task.weighted_metrics=[{class_name: AUC, config: PR}]", "task.weighted_metrics[0]",
         "got config: 'PR', expected a name, or {class_name: NAME, config: {…}}"),
        ("task.metrics=[checked_pkg.nets:Metric]", "task.metrics[0]",
         "checked_pkg.nets has no function or class 'Metric'"),
        ("task.train_data.source=array", "task.train_data.source",
         "unknown data source 'array'; did you mean 'arrays'?"),
        ("task.train_data.function=checked_pkg.data:lod", "task.train_data.function",
         "checked_pkg.data has no function or class 'lod'; did you mean 'load'?"),
        ("task.train_data.arguments.size=3", "task.train_data.arguments.size",
         "checked_pkg.data:load: unknown argument 'size'"),
        ("task.train_data.function=checked_pkg.data:bad", "task.train_data.function",
         "checked_pkg.data:bad: got x that is not finite in example 0"),
        ("task.train_data.function=checked_pkg.data:missing", "task.train_data.function",
         "checked_pkg.data:missing: FileNotFoundError: no file /data/x.csv"),
        ("task.train_data.input_path=a.npz", "task.train_data.input_path",
         "is not read by `source: arrays`; set function"),
        ("task.train_data={source: npz, function: ''}", "task.train_data.input_path",
         "is not set; for example, train.npz"),
        ("task.validation_split=0.2", "task.validation_split",
         "validation_data.source is set, too; remove one"),
    ],
)  # fmt: skip
def test_mistake_is_reported_with_its_setting_and_origin(experiment, override, path, message):
    problems = [row for row in _problems(experiment, override) if row[0] == path]

    assert [(row[0], row[1]) for row in problems] == [(path, message)]
    # A setting that is missing has the origin of its section.
    missing = message.startswith("is not set")
    assert problems[0][2].startswith(f"{experiment}:6" if missing else "--params_override[0]")


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
