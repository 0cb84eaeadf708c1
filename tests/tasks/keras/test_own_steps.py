"""Models that define their own steps, as Keras's examples do: trained, resumed, on replicas."""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
import tf_keras

import orbit_runner
from orbit_runner.errors import RunnerError
from tests.support import own_steps
from tests.support.configs import config_of
from tests.support.fit import map_arrays
from tests.support.keras_models import BASE
from tests.support.programs import check_kills, check_two_workers
from tests.support.toy import run

_HERE = "tests.support.own_steps"
_BATCH, _ROWS, _STEPS = 8, 64, 16
# The models have their optimizers.
_NO_OPTIMIZER = {
    path: value for path, value in BASE.items() if not path.startswith("trainer.optimizer_config")
}
_MOMENTS = (1, 7, 15)


class Program(NamedTuple):
    """A model and its data.

    Attributes:
        model: The function that returns the compiled model.
        data: The function that returns its data.
        logs: The names of the logs of its step.
        tests: The names of the logs of an evaluation; none if `evaluate` fails.
        is_random: Whether its step draws random numbers.
    """

    model: Callable[[], Any]
    data: Callable[[], Any]
    logs: tuple[str, ...]
    tests: tuple[str, ...]
    is_random: bool = True


_ACCURACY = ("loss", "sparse_categorical_accuracy")
_PROGRAMS = {
    "gan": Program(own_steps.gan, own_steps.images, ("d_loss", "g_loss"), ()),
    "distiller": Program(
        own_steps.distiller, own_steps.labeled, _ACCURACY, _ACCURACY, is_random=False
    ),
    "guided": Program(
        own_steps.guided, own_steps.labeled, ("loss", "accuracy", "largest_gradient"),
        ("loss", "accuracy"), is_random=False,
    ),
    "contrastive": Program(
        own_steps.contrastive, own_steps.images, ("c_loss", "c_acc"), ("c_loss", "c_acc")
    ),
    "contrastive_without_noise": Program(
        own_steps.contrastive_without_noise, own_steps.images, ("c_loss", "c_acc"),
        ("c_loss", "c_acc"), is_random=False,
    ),
}  # fmt: skip
_EXACT = [name for name, program in _PROGRAMS.items() if not program.is_random]
# Without its noise, this model is there to be compared with `fit`.
_KINDS = [name for name in _PROGRAMS if name != "contrastive_without_noise"]


def _train(model, program, folder, **settings):
    return orbit_runner.run(
        model,
        program.data(),
        validation=program.data() if program.tests else None,
        batch_size=_BATCH,
        epochs=_STEPS * _BATCH / _ROWS,
        model_dir=folder,
        progress="none",
        overrides={
            "trainer.validation_epochs": _STEPS * _BATCH / _ROWS,
            "trainer.summary_interval": _STEPS,
            "task.train_data.shuffle_buffer_size": 0,
            **settings,
        },
    )


def _logs(result, prefix):
    """Returns the values of training or of the evaluation by the names of the logs."""
    values = result.metrics if prefix == "validation_" else {
        name: value[-1] for name, value in result.history.items() if name.startswith(prefix)
    }  # fmt: skip
    return {name.removeprefix(prefix): float(value) for name, value in values.items()}


def _config(name, **changes):
    return config_of(_NO_OPTIMIZER, **_settings(name), **changes)


def _settings(name):
    program = _PROGRAMS[name]
    return {
        "task__model": f"{_HERE}:{program.model.__name__}",
        "task__loss": "''",
        "task__train_data__function": f"{_HERE}:{program.data.__name__}",
        "task__train_data__global_batch_size": _BATCH,
        "task__validation_data__source": "arrays" if program.tests else "''",
        "task__validation_data__function": (
            f"{_HERE}:{program.data.__name__}" if program.tests else "''"
        ),
        "task__validation_data__arguments": "{}",
        "trainer__train_steps": _STEPS,
        "trainer__validation_interval": _STEPS // 2,
        "trainer__checkpoint_interval": 4,
        "trainer__summary_interval": 4,
    }


def _mode(name):
    return "train_and_eval" if _PROGRAMS[name].tests else "train"


# `fit` shows the logs of the others. A subclass with models as arguments cannot be copied by its
# config.
@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("name", "form"), [("gan", "function"), ("contrastive", "function"), ("guided", "object")]
)
def test_logs_of_the_steps_are_the_metrics(tmp_path, name, form):
    program = _PROGRAMS[name]
    model = program.model if form == "function" else program.model()
    result = _train(model, program, tmp_path)

    assert {*program.logs} <= {*_logs(result, "training_")}
    assert {*program.tests} <= {*_logs(result, "validation_")}
    assert all(np.isfinite(value) for value in _logs(result, "training_").values())
    assert not result.inexact


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", _EXACT)
def test_weights_and_logs_are_those_of_fit(tmp_path, name):
    program = _PROGRAMS[name]
    package = tf_keras if name.startswith("contrastive") else keras
    package.utils.set_random_seed(3)
    model = program.model()
    data = program.data()
    _build(model, data)
    initial = model.get_weights()

    def build():
        model = program.model()
        _build(model, program.data())
        model.set_weights(initial)
        return model

    result = _train(build, program, tmp_path)
    rows = np.arange(_BATCH * _STEPS) % _ROWS
    repeated = map_arrays(lambda array: array[rows], data)
    x, y = repeated if isinstance(data, tuple) else (repeated, None)
    held_out = data if isinstance(data, tuple) else (data, None)
    history = model.fit(
        x,
        y,
        batch_size=_BATCH,
        shuffle=False,
        validation_data=held_out if program.tests else None,
        verbose=0,
    ).history

    for weight, expected in zip(_weights(result.model), _weights(model), strict=True):
        np.testing.assert_allclose(weight, expected, rtol=1e-5, atol=2e-6)
    logs = _logs(result, "training_")
    for log in program.logs:
        np.testing.assert_allclose(logs[log], history[log][-1], rtol=1e-5)
    logs = _logs(result, "validation_")
    for log in program.tests:
        np.testing.assert_allclose(logs[log], history[f"val_{log}"][-1], rtol=1e-5)


def _weights(model):
    """Returns the weights of a model, without those of its metrics, which Keras 2 counts."""
    totals = {id(variable) for metric in model.metrics for variable in metric.variables}
    return [np.asarray(weight) for weight in model.weights if id(weight) not in totals]


def _build(model, data):
    """Creates the variables of a model."""
    x = data[0] if isinstance(data, tuple) else data
    model(map_arrays(lambda array: array[:2], x))


@pytest.mark.slow
@pytest.mark.alternating
@pytest.mark.parametrize("strategy", ["one_device", "mirrored2"])
@pytest.mark.parametrize("name", _KINDS)
def test_run_that_is_killed_ends_with_the_weights_of_an_uninterrupted_one(tmp_path, name, strategy):
    config = _config(name, trainer__steps_per_loop=1)
    check_kills(config, tmp_path, _mode(name), strategy, _MOMENTS)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gan", "contrastive"])
def test_two_workers_have_the_weights_of_two_devices(tmp_path, name):
    check_two_workers(_config(name), tmp_path, _mode(name))


@pytest.mark.sample(1)
@pytest.mark.alternating
@pytest.mark.parametrize(
    "setting", ["runtime__logical_replicas", "trainer__gradient_accumulation_steps"]
)
@pytest.mark.parametrize("name", ["gan", "contrastive"])
def test_what_would_divide_a_step_of_the_model_is_refused(tmp_path, name, setting):
    with pytest.raises(RunnerError) as caught:
        run(_config(name, **{setting: 2}), tmp_path, _mode(name))

    assert setting.replace("__", ".") in str(caught.value)
    assert not list(tmp_path.glob("checkpoints/*"))
