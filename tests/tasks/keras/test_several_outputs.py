"""Models with several outputs: losses, weights and metrics of each, as in `compile` of Keras.

`test_models_equal_fit.py` compares runs of such models with `fit`.
"""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.errors import SettingError
from orbit_runner.tasks.keras.serving import ArrayPredictor
from orbit_runner.tasks.keras.task import KerasTask
from orbit_runner.tasks.keras.user_arrays import arrays_of
from tests.support.keras_models import keras_config
from tests.support.problems import raises

_HERE = "tests.tasks.keras.test_several_outputs"
_LOSSES = {"kind": "sparse_categorical_crossentropy", "size": "huber"}


def two_labels(count=100, seed=1, form="dict", weighted=False):
    """Returns points with a class and a number for each."""
    x = np.random.default_rng(seed).normal(size=(count, 4))
    kind = x[:, :3].argmax(axis=1)
    size = x.sum(axis=1, keepdims=True)
    y = {"kind": kind, "size": size}
    if form == "list":
        y = [kind, size]
    elif form == "one":
        y = size
    elif form == "typo":
        y = {"kind": kind, "sise": size}
    elif form == "part":
        y = {"kind": kind}
    elif form == "three":
        y = [kind, size, size]
    return (x, y, np.arange(count) % 3) if weighted else (x, y)


def _outputs(inputs, layers, dropout):
    hidden = layers.Dropout(dropout)(layers.Dense(8, activation="relu")(inputs))
    kind = layers.Dense(3, activation="softmax", name="kind")(hidden)
    return kind, layers.Dense(1, name="size")(hidden)


def functional(form="list", dropout=0.0):
    """Returns a functional model of Keras 2."""
    inputs = tf_keras.Input([4])
    kind, size = _outputs(inputs, tf_keras.layers, dropout)
    return tf_keras.Model(inputs, [kind, size] if form == "list" else {"size": size, "kind": kind})


def functional_3(form="list", dropout=0.0):
    """Returns the same model of Keras 3."""
    inputs = keras.Input([4])
    kind, size = _outputs(inputs, keras.layers, dropout)
    return keras.Model(inputs, [kind, size] if form == "list" else {"size": size, "kind": kind})


class Subclass(tf_keras.Model):
    """A model whose code alone knows its outputs."""

    def __init__(self, form="list", dropout=0.0):
        super().__init__()
        self._form = form
        self.kind = tf_keras.layers.Dense(3, activation="softmax")
        self.size = tf_keras.layers.Dense(1)

    def call(self, inputs, training=False):
        kind, size = self.kind(inputs), self.size(inputs)
        return (kind, size) if self._form == "list" else {"size": size, "kind": kind}


class Nested(Subclass):
    """A model that returns a tree of tensors."""

    def call(self, inputs, training=False):
        return {"both": [self.kind(inputs), self.size(inputs)]}


def _config(model="functional", data=None, **changes):
    sections = {
        f"task__{section}__{name}": value
        for section, arguments in (
            ("train_data", {**(data or {})}),
            ("validation_data", {"count": 37, "seed": 2, **(data or {})}),
        )
        for name, value in (
            ("function", f"{_HERE}:two_labels"),
            ("arguments", json.dumps(arguments)),
        )
    }
    defaults = {"task__loss": json.dumps(_LOSSES)}
    return keras_config(task__model=f"{_HERE}:{model}", **{**defaults, **sections, **changes})


def _built(*args, **kwargs):
    task = KerasTask(_config(*args, **kwargs).task)
    return task, task.build_model()


def test_one_array_is_the_label_of_all_outputs_and_one_loss_that_of_all():
    task, model = _built("two_numbers", {"form": "one"}, task__loss="mse", task__metrics="[mae]")
    x, y = two_labels(8, form="one")
    first, second = model(x.astype(np.float32))
    batch = tf.constant(x, tf.float32), tf.constant(y), None
    losses = task.example_losses(batch, [first, second])

    expected = np.square(y - first) + np.square(y - second)
    np.testing.assert_allclose(losses, expected[:, 0], rtol=1e-5)
    assert [metric.name for metric in task.build_metrics()] == [
        "first_loss", "second_loss", "first_mae", "second_mae",
    ]  # fmt: skip


def two_numbers(first="first"):
    """Returns a model with two numbers."""
    inputs = tf_keras.Input([4])
    names = (first, "second")
    return tf_keras.Model(inputs, [tf_keras.layers.Dense(1, name=name)(inputs) for name in names])


@pytest.mark.parametrize(
    ("changes", "code", "path"),
    [
        ({"data": {"form": "typo"}}, "model-mismatch", "task.model"),
        ({"data": {"form": "three"}}, "model-mismatch", "task.model"),
        ({"model": "Nested"}, "model-mismatch", "task.model"),
        ({"task__loss": "categorical_crossentropy"}, "model-mismatch", "task.loss"),
        ({"task__loss": "{kind: mse, size: hubber}"}, "unknown-name", "task.loss.size"),
        ({"task__loss": "{size: mse, knd: mse}"}, "model-mismatch", "task.loss"),
        ({"model": "functional_3", "data": {"form": "part"},
          "task__loss": "{kind: mse, size: null}"}, "model-mismatch", "task.loss"),
        ({"model": "functional_3", "task__loss": "{kind: mse}"}, "model-mismatch", "task.loss"),
        ({"task__loss": "{kind: null, size: null}"}, "not-set", "task.loss"),
        ({"task__loss": "''"}, "not-set", "task.loss"),
        ({"task__loss_weights": "{sise: 1}"}, "model-mismatch", "task.loss"),
        ({"task__metrics": "{kind: [F1Score]}"}, "model-mismatch", "task.metrics"),
        ({"task__metrics": "{kind: [acuracy]}"}, "unknown-name", "task.metrics.kind[0]"),
        ({"model": "two_numbers", "data": {"form": "one"}, "task__loss": "mse",
          "task__model__arguments__first": "validation"}, "set-twice", "task.metrics"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_an_error_that_names_the_output(changes, code, path):
    with raises(code, path):
        _built(**changes)


def test_model_with_one_tensor_refuses_several_labels_and_values():
    with raises("model-mismatch", "task.model"):
        KerasTask(_config().task.replace(model=keras_config().task.model)).build_model()
    with pytest.raises(SettingError, match=r"\['a'\]") as caught:  # Keras numbers the output.
        KerasTask(keras_config(task__loss="{a: mse}").task).build_model()
    assert caught.value.path == "task.loss"


def test_class_weights_need_one_label():
    task, _ = _built(task__class_weights="balanced")
    with raises("not-supported"):
        task.training_classes()


def test_arrays_by_output():
    x, y = two_labels(5)
    expected = {"x": ((4,), "float32"), "y.kind": ((), "int64"), "y.size": ((1,), "float32")}
    assert arrays_of((x, y), "f").specs == expected
    listed = arrays_of((x, [y["kind"], y["size"]]), "f")
    assert [*listed.arrays["y"]] == ["0", "1"]
    assert listed.describe_row(1) == {
        "label.0": int(y["kind"][1]),
        "label.1": pytest.approx(float(y["size"][1, 0]), rel=1e-5),
    }
    # As many arrays as examples are the labels of the examples.
    assert arrays_of((x, [np.arange(2)] * 5), "f").arrays["y"].shape == (5, 2)
    with raises("bad-data"):
        arrays_of((x, {"kind": ["a"] * 5}), "f")
    with raises("bad-data"):
        arrays_of((x, {"kind": np.arange(4)}), "f")


def test_outputs_and_classes_are_predicted():
    task, model = _built(task__model__arguments__form="dict")
    predictor = ArrayPredictor(task.serving(model).signatures)
    (prediction,) = predictor.predict(list(predictor.items(["[1, 2, 3, 4]"], [])))

    outputs = model(np.array([[1, 2, 3, 4]], np.float32))
    number = int(np.argmax(outputs["kind"][0]))
    assert prediction.data["kind_class"] == number
    np.testing.assert_allclose(prediction.data["size_outputs"], outputs["size"][0], rtol=1e-4)
    np.testing.assert_allclose(prediction.data["kind_probabilities"], outputs["kind"][0], rtol=1e-4)
    assert f"kind class {number} (" in prediction.text
    assert ", size [" in prediction.text or prediction.text.startswith("0: size [")
