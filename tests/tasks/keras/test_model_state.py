"""Metrics that a model adds itself, layers with a state of their own, and inputs of other kinds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.tasks.keras.task import KerasTask
from orbit_runner.tasks.keras.user_arrays import arrays_of
from tests.support.keras_models import keras_config
from tests.support.problems import raises
from tests.support.toy import run_and_resume

_HERE = "tests.tasks.keras.test_model_state"


class Measured(tf_keras.Model):
    """A model that adds a metric in its call."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = tf_keras.layers.Dense(8, activation="relu")
        self.out = tf_keras.layers.Dense(3)

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        hidden = self.hidden(inputs)
        self.add_metric(tf.reduce_mean(hidden), name="activation", aggregation="mean")
        return self.out(hidden)


def functional() -> tf_keras.Model:
    """Returns a functional model with a metric."""
    inputs = tf_keras.Input([4])
    hidden = tf_keras.layers.Dense(8, activation="relu")(inputs)
    model = tf_keras.Model(inputs, tf_keras.layers.Dense(3)(hidden))
    model.add_metric(tf.reduce_mean(hidden), name="activation", aggregation="mean")
    return model


class Counter(tf_keras.layers.Layer):
    """A layer that counts training steps, and divides by their number."""

    def __init__(self) -> None:
        super().__init__()
        self.count = self.add_weight(
            name="count",
            shape=(),
            initializer="ones",
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        if training:
            self.count.assign_add(1.0)
        return inputs / self.count


def counting() -> tf_keras.Model:
    """Returns a model whose layer has a state."""
    layers = tf_keras.layers
    return tf_keras.Sequential([layers.Input([4]), Counter(), layers.Dense(3)])


class OfAttribute(tf_keras.Model):
    """A model with a metric that is an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.out = tf_keras.layers.Dense(3)
        self.mean = tf_keras.metrics.Mean("activation")

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        self.mean.update_state(tf.reduce_mean(tf.abs(inputs)))
        return self.out(inputs)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["Measured", "functional", "OfAttribute"])
def test_metric_of_the_model_is_reported(model: str, tmp_path: Path) -> None:
    config = keras_config(task__model=f"{_HERE}:{model}", task__metrics="[accuracy]")
    logs = run_and_resume(config, tmp_path).logs
    assert 0 < logs["activation"] < 2
    assert 0 < logs["accuracy"] <= 1


def test_metric_of_the_model_is_the_mean_over_its_calls() -> None:
    task = KerasTask(keras_config(task__model=f"{_HERE}:Measured").task)
    model = task.build_model()
    x = np.random.default_rng(1).normal(size=[8, 4]).astype(np.float32)
    (metric,) = task.build_metrics()
    metric.reset_state()
    task.validation_step((tf.constant(x), tf.zeros([8], tf.int32), None), model)

    assert metric.name == "activation"
    np.testing.assert_allclose(metric.result(), np.mean(model.hidden(x)), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["one_device", "mirrored2"])
def test_state_of_a_layer_is_part_of_the_run(strategy: str, tmp_path: Path) -> None:
    config = keras_config(task__model=f"{_HERE}:counting")
    runs = run_and_resume(config, tmp_path, strategy)
    if strategy == "one_device":
        assert float(runs.model.layers[0].count) == 21


def _matrix() -> Any:
    from scipy import sparse

    return sparse.eye(3)


@pytest.mark.parametrize(
    "x",
    [
        _matrix,
        lambda: tf.sparse.from_dense(np.eye(3)),
        lambda: tf.ragged.constant([[1.0], [2.0, 3.0], []]),
        lambda: np.array([[1.0], [2.0, 3.0], []], object),
    ],
)
def test_sparse_and_ragged_arrays_are_refused(x: Any) -> None:
    with raises("bad-data"):
        arrays_of((x(), np.zeros(3)), "data")
