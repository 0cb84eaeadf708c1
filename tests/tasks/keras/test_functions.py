"""Functions and objects that a program passes to `run`: which one a name means."""

import functools
import subprocess
import sys
import types

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import orbit_runner
from orbit_runner.tasks.keras import passed_objects
from orbit_runner.tasks.keras.data import KerasData
from orbit_runner.tasks.keras.model_builder import register_model
from orbit_runner.tasks.keras.passed_objects import (
    load_function,
    passed_functions_scope,
    register_function,
)
from orbit_runner.utils.code_digest import code_digest
from tests.support import keras_models
from tests.support.problems import check, raises
from tests.support.toy import Notes

_LOGITS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@pytest.fixture(autouse=True)
def forgotten_functions():
    yield
    passed_objects.FUNCTIONS.clear()


def examples(size):
    """Returns points and their classes."""
    return keras_models.classes(size)


def _closure(size):
    def load():
        return examples(size)

    return load


class _Loader:
    def __init__(self, size):
        self.size = size

    def load(self):
        return examples(self.size)

    def __call__(self):
        return examples(self.size)


# Two functions of one name, which return 40 and 20 examples.
_PAIRS = {
    "lambdas": (lambda: examples(40), lambda: examples(20)),
    "closures": (_closure(40), _closure(20)),
    "partials": (functools.partial(examples, 40), functools.partial(examples, 20)),
    "methods": (_Loader(40).load, _Loader(20).load),
    "objects": (_Loader(40), _Loader(20)),
}


def build(activation="relu"):
    """Returns a small classifier."""
    hidden = keras.layers.Dense(8, activation=activation)
    return keras.Sequential([keras.Input([4]), hidden, keras.layers.Dense(3)])


def _run(model_dir, model=build, data=None, **settings):
    settings = {"loss": _LOGITS, "epochs": 1, "batch_size": 20, "progress": "none", **settings}
    data = examples(40) if data is None else data
    return orbit_runner.run(model, data, model_dir=model_dir, **settings)


@pytest.mark.parametrize("kind", _PAIRS)
def test_functions_of_one_name_have_names_of_their_own(kind):
    first, second = _PAIRS[kind]
    with passed_functions_scope():
        assert register_function(examples) == f"{__name__}:examples"
        names = [register_function(function) for function in (first, second, first)]
        sizes = [len(load_function(name, "")()[1]) for name in names]
    with passed_functions_scope():
        second_names = [register_function(function) for function in (first, second)]

    assert names[1] == f"{names[0]}_2"
    assert names[0] == names[2]
    assert sizes == [40, 20, 40]
    assert second_names == names[:2]


def _two_outputs():
    inputs = keras.Input([4])
    heads = {
        name: keras.layers.Dense(1, kernel_initializer="zeros", name=name)(inputs) for name in "ab"
    }
    return keras.Model(inputs, heads)


def _scaled(factor):
    def squared(labels, outputs):
        return factor * tf.reduce_mean(tf.square(tf.cast(labels, outputs.dtype) - outputs), -1)

    return squared


@pytest.mark.slow
def test_losses_and_metrics_of_one_name_are_those_of_their_outputs(tmp_path):
    ones = {name: np.ones([40, 1], np.float32) for name in "ab"}
    data = examples(40)[0], ones
    result = _run(
        tmp_path,
        _two_outputs,
        data,
        validation=data,
        loss={"a": _scaled(1.0), "b": _scaled(100.0)},
        metrics={"a": [_scaled(2.0)], "b": [_scaled(200.0)]},
        optimizer=keras.optimizers.SGD(1e-30),
    )

    metrics = {name: round(value, 3) for name, value in result.metrics.items()}
    assert metrics == {
        "a_loss": 1.0,
        "b_loss": 100.0,
        "a_squared": 2.0,
        "b_squared": 200.0,
        "validation_loss": 101.0,
        "validation_examples": 40.0,
    }


def _doubled():
    def doubled(labels, outputs):
        return 2.0 * keras.losses.sparse_categorical_crossentropy(labels, outputs, from_logits=True)

    return doubled


@pytest.mark.slow
def test_second_start_of_a_program_resumes(tmp_path, capsys):
    def start(epochs):
        # Functions with the same code, as those of another process.
        train, validation = _closure(40), _closure(20)
        notes = Notes()
        _run(
            tmp_path, lambda: build(), train, validation=validation, epochs=epochs, loss=_doubled(),
            callbacks=[notes], progress="plain",
        )  # fmt: skip
        return notes.started_at[0]

    assert [start(1), start(2)] == [0, 2]
    assert "code changed" not in capsys.readouterr().err


@pytest.mark.slow
def test_changed_function_of_the_same_run_is_reported(tmp_path, capsys):
    _run(tmp_path, lambda: build("relu"))
    result = _run(tmp_path, lambda: build("tanh"), epochs=2, progress="plain")

    changed = "note: this code changed since the checkpoint of step 2 was saved:\n  __main__:lambda"
    assert changed in capsys.readouterr().err
    assert "it was resumed at step 2 with changed code (__main__:lambda)" in result.inexact


def _network(activation):
    def network():
        return build(activation)

    return network


@pytest.mark.slow
def test_model_is_not_loaded_with_another_function_than_the_run_was_trained_with(tmp_path):
    result = _run(tmp_path / "relu", _network("relu"))
    x, _ = examples(40)
    np.testing.assert_array_equal(orbit_runner.load(tmp_path / "relu").model()(x), result.model(x))
    _run(tmp_path / "tanh", _network("tanh"))
    model = orbit_runner.load(tmp_path / "tanh").model()
    assert model.layers[0].activation.__name__ == "tanh"
    with raises("other-code", "task.model.build"):
        orbit_runner.load(tmp_path / "relu").model()
    with raises("import-failed", "task.model.build"):  # As in another process.
        passed_objects.FUNCTIONS.clear()
        orbit_runner.load(tmp_path / "tanh").model()


@pytest.mark.slow
def test_every_function_that_cannot_be_imported_is_reported_at_the_start(tmp_path, capsys):
    result = _run(
        tmp_path,
        lambda: build(),
        _closure(40),
        validation=_Loader(20),
        loss=_doubled(),
        metrics=["accuracy", _doubled()],
        progress="plain",
    )

    reasons = {
        "task.model.build: __main__:lambda",
        "task.train_data.function: __main__:load",
        "task.validation_data.function: __main__:_Loader",
        "task.loss: __main__:doubled",
        "task.metrics[1]: __main__:doubled_2",
    }
    assert {
        reason.removesuffix(" cannot be imported by its name") for reason in result.inexact
    } == (reasons)
    start = capsys.readouterr().err.partition("building the model")[0]
    assert all(reason in start for reason in reasons)

    passed_objects.FUNCTIONS.clear()  # As in another process, which reads the run, too.
    paths = ["model.build", "loss", "metrics[1]", "train_data.function", "validation_data.function"]
    problems = KerasData(orbit_runner.load(tmp_path).config.task).problems()
    check(problems, *(("import-failed", path) for path in paths))


def _made(text, **values):
    """Returns the function or class `f` of a program, as of a script."""
    module = types.ModuleType("__main__")
    vars(module).update(values)
    exec(compile(text, "<cell>", "exec"), vars(module))
    return vars(module)["f"]


_CELL = """
def f(x, factor=2):
    return [x + offset for _ in range(factor)]
"""
_CLASS = """
class f(list):
    size = 3
    def call(self): return 1
"""


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (lambda: _made(_CELL, offset=1), lambda: _made(_CELL.replace("x +", "x -"), offset=1)),
        (lambda: _made(_CELL, offset=1), lambda: _made(_CELL, offset=2)),
        (lambda: _made(_CELL, offset=[1]), lambda: _made(_CELL, offset=[2])),
        (lambda: _made(_CELL, offset=np.ones(3)), lambda: _made(_CELL, offset=np.zeros(3))),
        (lambda: _made(_CELL), lambda: _made(_CELL.replace("=2", "=3"))),
        (lambda: _made(_CELL), lambda: _made(_CELL.replace("]", " if x]"))),
        (lambda: _made(_CLASS), lambda: _made(_CLASS.replace("3", "4"))),
        (lambda: _made(_CLASS), lambda: _made(_CLASS.replace("return 1", "return 2"))),
        (lambda: _made(_CLASS), lambda: _made(_CLASS.replace("list", "dict"))),
        (lambda: functools.partial(examples, 1), lambda: functools.partial(examples, 2)),
        (lambda: _Loader(1).load, lambda: _Loader(2).load),
        (lambda: keras.losses.Huber(1.0), lambda: keras.losses.Huber(2.0)),
        (lambda: _closure(1), lambda: _closure(2)),
        (lambda: {"a": {1, 2}}, lambda: {"a": {1, 3}}),
        (lambda: tf.constant([1.0]), lambda: tf.constant([2.0])),
    ],
)
def test_digest_is_that_of_what_a_function_computes_with(first, second):
    assert code_digest(first()) == code_digest(first())
    assert code_digest(first()) != code_digest(second())


@pytest.mark.slow
def test_digest_is_the_same_in_another_process():
    text = (
        f"text = {_CELL!r}\nexec(text)\noffset = {{'b', 'a', 'c'}}\n"
        "from orbit_runner.utils.code_digest import code_digest\n"
        "print(code_digest(lambda n: f(n) in {'x', 'y', 'z'}))"
    )
    digests = {
        subprocess.run([sys.executable, "-c", text], capture_output=True, check=True).stdout
        for _ in range(2)
    }
    assert len(digests) == 1


def _shifted(shift):
    def activation(x):
        return x + shift

    return activation


def _layer_of(shift):
    class Shift(keras.layers.Layer):
        def call(self, inputs):
            return inputs + shift

    return Shift()


@pytest.mark.parametrize("package", [keras, tf_keras], ids=["keras", "tf_keras"])
def test_models_with_other_functions_are_others(package):
    def digest(shift, layer=None):
        package.backend.clear_session()
        package.utils.set_random_seed(1)
        layer = layer or package.layers.Dense(2, activation=_shifted(shift))
        return register_model(package.Sequential([package.Input([4]), layer]))

    assert digest(1.0) == digest(1.0) != digest(2.0)
    if package is keras:
        assert digest(0, _layer_of(1.0)) == digest(0, _layer_of(1.0)) != digest(0, _layer_of(2.0))
