"""The arguments of `run`: data in all forms that `fit` takes, numbers of NumPy, and mistakes."""

from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
import yaml

import orbit_runner
from orbit_runner.tasks.keras.stream import passed_stream
from orbit_runner.tf_internals import set_eager_generator
from tests.support import keras_models
from tests.support.problems import raises
from tests.support.toy import Notes

_LOGITS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
_SIZE = 50


def build():
    """Returns a small classifier."""
    return keras.Sequential([keras.Input([4]), keras.layers.Dense(3)])


def _run(model_dir, data=None, model=build, **settings):
    data = keras_models.classes(_SIZE) if data is None else data
    settings = {"loss": _LOGITS, "progress": "none", **settings}
    return orbit_runner.run(model, data, model_dir=model_dir, **settings)


def _dataset(size=_SIZE, batch=20):
    x, y = keras_models.classes(size)
    return tf.data.Dataset.from_tensor_slices((x.astype(np.float32), y)).batch(batch)


@pytest.mark.slow
def test_numbers_of_numpy_are_numbers(tmp_path):
    def settings(number, integer):
        return {
            "epochs": integer(2),
            "batch_size": integer(25),
            "seed": integer(3),
            "learning_rate": number(0.1),
            "optimizer": "sgd",
            "validation_split": number(0.2),
            "loss_weights": [number(0.5)],
            "model": {"build": f"{__name__}:of_units", "arguments": {"units": integer(3)}},
            "overrides": {
                "trainer.checkpoint_interval": integer(2),
                "trainer.export_subdir": Path("exported"),
            },
        }

    _run(tmp_path / "python", **settings(float, int))
    _run(tmp_path / "numpy", **settings(np.float32, np.uint64))
    python, numpy = (
        yaml.safe_load((tmp_path / name / "config.yaml").read_text())
        for name in ("python", "numpy")
    )
    assert numpy == python


def of_units(units=4):
    """Returns a small network."""
    return keras.Sequential([keras.Input([4]), keras.layers.Dense(units)])


@pytest.mark.parametrize(
    ("argument", "value", "code"),
    [
        ("epochs", "3", "wrong-type"),
        ("epochs", True, "wrong-type"),
        ("epochs", 1e-9, "out-of-range"),
        ("batch_size", "8", "wrong-type"),
        ("seed", [1], "wrong-type"),
        ("learning_rate", [0.1], "wrong-type"),
        ("validation_split", "0.2", "wrong-type"),
        ("progress", "fast", "not-allowed"),
        ("resume", "never", "not-allowed"),
        ("overrides", "trainer.train_steps=3", "wrong-type"),
        ("model_dir", 5, "bad-path"),
        ("model_dir", "~nobody_/x", "bad-path"),
        ("name", {"a", "b"} - {"b"}, "wrong-type"),
        ("model", keras.layers.Dense(2), "wrong-type"),
    ],
)
def test_wrong_argument_is_named_and_leaves_no_directory(tmp_path, argument, value, code):
    with raises(code, argument):
        _run(**{"model_dir": tmp_path / "run", argument: value})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("overrides['task.model']", {"overrides": {"task.model": {"arguments": {"a": {1}}}}}),
        ("model", {"model": {"build": f"{__name__}:of_units", "arguments": {"units": 1j}}}),
        ("data", {"data": {"source": "npz", "input_path": object}}),
    ],
)
def test_value_that_json_cannot_represent_names_its_argument(tmp_path, argument, value):
    with raises("wrong-type", argument):
        _run(tmp_path / "run", **value)


@pytest.mark.slow
def test_dataset_of_tf_data_is_trained_on_as_a_function_that_returns_it(tmp_path):
    """Also if the run is resumed, which it is with the same dataset only."""
    first = _run(tmp_path / "object", _dataset(), validation=_dataset(30, 7), epochs=1)
    notes = Notes()
    objects = _run(
        tmp_path / "object", _dataset(), validation=_dataset(30, 7), epochs=3, callbacks=[notes]
    )
    function = _run(
        tmp_path / "function", lambda: _dataset(), validation=lambda: _dataset(30), epochs=3,
        batch_size=20,
    )  # fmt: skip

    assert notes.started_at == [first.step] == [3]
    assert objects.weights == function.weights
    assert objects.metrics["validation_examples"] == 30
    assert first.inexact == []  # `Notes` is an object, which no config names.
    task = objects.config.task
    assert task.train_data.global_batch_size == 20
    assert task.validation_data.global_batch_size == 7
    for other in (_dataset().map(lambda x, y: (x + 1, y)), _dataset(60)):
        with raises("data-changed"):
            _run(tmp_path / "object", other, validation=_dataset(30, 7), epochs=5)


@pytest.mark.slow
def test_dataset_that_differs_each_time_is_reported(tmp_path):
    def shuffled(size):
        return _dataset(size).unbatch().shuffle(size).batch(10)

    result = _run(tmp_path, shuffled(40), validation=shuffled(20))

    assert result.step == 4
    assert result.metrics["validation_examples"] == 20
    paths = [reason.partition(":")[0] for reason in result.inexact]
    assert paths == ["task.train_data", "task.validation_data"]
    resumed = _run(tmp_path, shuffled(40), validation=shuffled(20), epochs=2)
    assert resumed.step == 8


def _unseeded():
    set_eager_generator(None, None)
    return _dataset().map(lambda x, y: (x + tf.random.uniform([]), y))


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: _dataset().unbatch(), "bad-data"),
        (lambda: _dataset().map(lambda x, y: x), "bad-data"),
        (lambda: _dataset().filter(lambda x, y: False), "empty-data"),
        (_unseeded, "not-repeatable"),
    ],
    ids=["single examples", "no labels", "no batches", "unseeded random ops"],
)
def test_dataset_that_cannot_be_trained_on_is_refused(tmp_path, make, code):
    with raises(code, "data"):
        _run(tmp_path / "run", make())
    assert not (tmp_path / "run").exists()


def test_dataset_without_an_end_is_refused_for_validation(tmp_path):
    with raises("not-set", "trainer.validation_steps"):
        _run(tmp_path, _dataset(), validation=_dataset().repeat())


def test_dataset_whose_elements_have_tuples_has_numbered_inputs_and_labels():
    dataset = _dataset().map(lambda x, y: ((x[:, :1], x[:, 1:]), (y, {"z": y})))
    assert dict(passed_stream(dataset, "data", is_training=True).specs) == {
        "x.0": ((1,), "float32"),
        "x.1": ((3,), "float32"),
        "y.0": ((), "int64"),
        "y.1.z": ((), "int64"),
    }


_X = np.zeros([4, 2], np.float32)
_Y = np.arange(4)


class _Batches(keras.utils.PyDataset):
    def __init__(self, item, length=3):
        super().__init__()
        self._item = item
        self._length = length

    def __len__(self):
        return self._length

    def __getitem__(self, index):
        return self._item


@pytest.mark.slow
def test_object_with_batches_keeps_their_size(tmp_path):
    result = _run(tmp_path / "own", _Batches((_X, _Y)), _flat, epochs=1)
    assert (result.step, result.config.task.train_data.global_batch_size) == (3, 4)
    other = _run(tmp_path / "set", _Batches((_X, _Y)), _flat, epochs=1, batch_size=6)
    assert other.step == 2


def _flat():
    return keras.Sequential([keras.Input([2]), keras.layers.Dense(4)])


@pytest.mark.slow
def test_model_without_trainable_weights_is_reported(tmp_path, capsys):
    model = build()
    model.trainable = False
    _run(tmp_path, model=model, epochs=1, progress="plain")
    assert "warning: the model has no trainable weights" in capsys.readouterr().err


@pytest.mark.parametrize("argument", ["data", "validation", "validation_data"])
def test_data_of_another_form_names_its_argument(tmp_path, argument):
    with raises("bad-data", argument):
        _run(**{"model_dir": tmp_path, argument: {"w": _Y}})
