"""Models are refused if their inputs are not those of the data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.tasks.keras.task import KerasTask
from tests.support.keras_models import keras_config
from tests.support.problems import raises

_HERE = "tests.tasks.keras.test_model_inputs"
BY_DICT = "tests.support.keras_models:adder"


def data(names: list[str]) -> dict[str, Any]:
    """Returns arrays by the names of inputs."""
    arrays = {name: np.ones([40, 2], np.float32) for name in names}
    return {**arrays, "y": np.ones([40, 1], np.float32)}


def by_list() -> tf_keras.Model:
    """Returns a model that takes a list."""
    left, right = tf_keras.Input([2], name="left"), tf_keras.Input([2], name="right")
    joined = tf_keras.layers.Concatenate()([left, right])
    return tf_keras.Model([left, right], tf_keras.layers.Dense(1)(joined))


def of_one() -> tf_keras.Model:
    """Returns a model with one input."""
    return tf_keras.Sequential([tf_keras.layers.Input([2]), tf_keras.layers.Dense(1)])


class OfTwo(tf_keras.Model):
    """A subclass, whose inputs only its code knows."""

    def __init__(self) -> None:
        super().__init__()
        self.out = tf_keras.layers.Dense(1)

    def call(self, inputs: Any, training: bool = False) -> tf.Tensor:
        return self.out(inputs["left"] + inputs["right"])


class OfAttribute(OfTwo):
    """A subclass whose code is wrong."""

    def call(self, inputs: Any, training: bool = False) -> tf.Tensor:
        return self.out(inputs.left)


def _build(model: str, names: list[str]) -> tf_keras.Model:
    function = {"task__train_data__function": f"{_HERE}:data"}
    arguments = {"task__train_data__arguments": f"{{names: {names}}}"}
    changes = {
        name.replace("train_data", section): value
        for section in ("train_data", "validation_data")
        for name, value in (function | arguments).items()
    }
    config = keras_config(
        task__model=model if ":" in model else f"{_HERE}:{model}", task__loss="mse", **changes
    )
    return KerasTask(config.task).build_model()


@pytest.mark.parametrize("model", [BY_DICT, "by_list", "OfTwo"])
def test_model_with_the_inputs_of_the_data_is_built(model: str) -> None:
    assert _build(model, ["left", "right"]).trainable_variables


@pytest.mark.parametrize(
    ("model", "names"),
    [
        # Keras assigns these by their order, so `right` would be `extra`.
        (BY_DICT, ["left", "rigth"]),
        ("by_list", ["extra", "left"]),
        # Keras ignores these.
        (BY_DICT, ["left", "right", "time"]),
        ("of_one", ["left", "right"]),
        (BY_DICT, ["left"]),
        ("by_list", ["x"]),
        ("OfTwo", ["left"]),
        ("OfTwo", ["x"]),
        ("OfAttribute", ["left", "right"]),
    ],
)
def test_model_with_other_inputs_is_refused(model: str, names: list[str]) -> None:
    with raises("model-mismatch", "task.model"):
        _build(model, names)
