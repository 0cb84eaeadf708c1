"""Metrics that a model adds itself, layers with a state of their own, and inputs of models."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from scipy import sparse

from orbit_runner.tasks.keras.task import KerasTask
from orbit_runner.tasks.keras.user_arrays import arrays_of
from tests.support.configs import in_both_sections
from tests.support.keras_models import keras_config
from tests.support.problems import raises
from tests.support.toy import run_and_resume

_HERE = "tests.tasks.keras.test_model_state"
BY_DICT = "tests.support.keras_models:adder"


class Counter(tf_keras.layers.Layer):
    """A layer that counts training steps, and divides by their number."""

    def __init__(self):
        super().__init__()
        self.count = self.add_weight(
            name="count",
            shape=(),
            initializer="ones",
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    def call(self, inputs, training=False):
        if training:
            self.count.assign_add(1.0)
        return inputs / self.count


class Measured(tf_keras.Model):
    """A model that counts its steps, and adds a metric in its call."""

    def __init__(self, adds_metric=True):
        super().__init__()
        self.adds_metric = adds_metric
        self.counter = Counter()
        self.hidden = tf_keras.layers.Dense(8, activation="relu")
        self.out = tf_keras.layers.Dense(3)

    def call(self, inputs, training=False):
        hidden = self.hidden(self.counter(inputs, training=training))
        if self.adds_metric:
            self.add_metric(tf.reduce_mean(hidden), name="activation", aggregation="mean")
        return self.out(hidden)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["one_device", "mirrored2"])
def test_state_and_metric_of_a_model_are_part_of_the_run(strategy, tmp_path):
    is_alone = strategy == "one_device"  # Keras 2 cannot add metrics on several replicas.
    config = keras_config(
        task__model=f"{_HERE}:Measured",
        task__model__arguments__adds_metric=is_alone,
        task__metrics="[accuracy]",
    )
    runs = run_and_resume(config, tmp_path, strategy)
    assert 0 < runs.logs["accuracy"] <= 1
    if is_alone:
        assert 0 < runs.logs["activation"] < 2
        assert float(runs.model.counter.count) == 21


def test_metric_of_the_model_is_the_mean_over_its_calls():
    task = KerasTask(keras_config(task__model=f"{_HERE}:Measured").task)
    model = task.build_model()
    x = np.random.default_rng(1).normal(size=[8, 4]).astype(np.float32)
    (metric,) = task.build_metrics()
    metric.reset_state()
    task.validation_step((tf.constant(x), tf.zeros([8], tf.int32), None), model)

    assert metric.name == "activation"
    np.testing.assert_allclose(metric.result(), np.mean(model.hidden(x)), rtol=1e-5)


@pytest.mark.parametrize(
    "x",
    [
        lambda: sparse.eye(3),
        lambda: tf.ragged.constant([[1.0], [2.0, 3.0], []]),
        lambda: np.array([[1.0], [2.0, 3.0], []], object),
    ],
)
def test_sparse_and_ragged_arrays_are_refused(x):
    with raises("bad-data"):
        arrays_of((x(), np.zeros(3)), "data")


def data(names):
    """Returns arrays by the names of inputs."""
    arrays = {name: np.ones([40, 2], np.float32) for name in names}
    return {**arrays, "y": np.ones([40, 1], np.float32)}


def by_list():
    """Returns a model that takes a list."""
    left, right = tf_keras.Input([2], name="left"), tf_keras.Input([2], name="right")
    joined = tf_keras.layers.Concatenate()([left, right])
    return tf_keras.Model([left, right], tf_keras.layers.Dense(1)(joined))


def of_one():
    """Returns a model with one input."""
    return tf_keras.Sequential([tf_keras.layers.Input([2]), tf_keras.layers.Dense(1)])


class OfTwo(tf_keras.Model):
    """A subclass, whose inputs only its code knows."""

    def __init__(self):
        super().__init__()
        self.out = tf_keras.layers.Dense(1)

    def call(self, inputs, training=False):
        return self.out(inputs["left"] + inputs["right"])


class OfAttribute(OfTwo):
    """A subclass whose code is wrong."""

    def call(self, inputs, training=False):
        return self.out(inputs.left)


def _build(model, names):
    changes = in_both_sections(function=f"{_HERE}:data", arguments=f"{{names: {names}}}")
    config = keras_config(
        task__model=model if ":" in model else f"{_HERE}:{model}", task__loss="mse", **changes
    )
    return KerasTask(config.task).build_model()


@pytest.mark.parametrize("model", [BY_DICT, "by_list", "OfTwo"])
def test_model_with_the_inputs_of_the_data_is_built(model):
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
def test_model_with_other_inputs_is_refused(model, names):
    with raises("model-mismatch", "task.model"):
        _build(model, names)
