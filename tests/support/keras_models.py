"""Models, data, losses and metrics as a user of the task `keras` writes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from tests.support.configs import config_of

_HERE = "tests.support.keras_models"
BASE = {
    "task.name": "keras",
    "task.model": f"{_HERE}:classifier",
    "task.train_data.source": "arrays",
    "task.train_data.function": f"{_HERE}:classes",
    "task.train_data.global_batch_size": 16,
    "task.validation_data.source": "arrays",
    "task.validation_data.function": f"{_HERE}:classes",
    "task.validation_data.arguments": "{count: 37, seed: 2}",
    "task.validation_data.global_batch_size": 16,
    "task.loss": "{class_name: SparseCategoricalCrossentropy, config: {from_logits: true}}",
    "trainer.train_steps": 20,
    "trainer.validation_interval": 10,
    "trainer.checkpoint_interval": 5,
    "trainer.summary_interval": 5,
    "trainer.optimizer_config.optimizer.type": "adam",
    "trainer.optimizer_config.learning_rate.type": "constant",
    "trainer.optimizer_config.learning_rate.constant.learning_rate": 0.01,
    "runtime.distribution_strategy": "one_device",
}
NO_VALIDATION = {
    "task__validation_data__source": "''",
    "task__validation_data__function": "''",
    "task__validation_data__arguments": "{}",
}
NO_ARRAYS = {"task__train_data__function": "''", **NO_VALIDATION}
# A model of two inputs, and its data.
ADDER = {
    "task__model": f"{_HERE}:adder",
    "task__train_data__function": f"{_HERE}:two_inputs",
    "task__validation_data__function": f"{_HERE}:two_inputs",
    "task__validation_data__arguments": "{}",
    "task__loss": "mse",
}
_DECAY = "{class_name: CosineDecay, config: {initial_learning_rate: 0.01, decay_steps: 30}}"
_ADAMW = {"task__optimizer": f"{{class_name: AdamW, config: {{learning_rate: {_DECAY}}}}}"}
# Optimizers of Keras in a config, and settings of a run beside them.
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "optimizer that averages": {
        "task__optimizer": "{class_name: SGD, config: {momentum: 0.9, use_ema: true, "
        "ema_momentum: 0.9, ema_overwrite_frequency: 8, clipnorm: 0.5}}"
    },
    "optimizer, fine-tuning and accumulation": {
        **_ADAMW,
        "trainer__fine_tuning": "{freeze: [dense]}",
        "trainer__gradient_accumulation_steps": 2,
    },
    "optimizer and average": {
        **_ADAMW, "trainer__optimizer_config__ema": "{average_decay: 0.9}",
    },
    "optimizer and logical replicas": {**_ADAMW, "runtime__logical_replicas": 2},
    "optimizer in float16": {**_ADAMW, "runtime__mixed_precision_dtype": "float16"},
}  # fmt: skip


def keras_config(**changes: Any) -> Any:
    """Returns the config of a small classifier; `__` in a name stands for a dot.

    Changes with `task__optimizer` replace the optimizer of the trainer.
    """
    replaced = "trainer.optimizer_config" if "task__optimizer" in changes else " "
    base = {name: value for name, value in BASE.items() if not name.startswith(replaced)}
    return config_of(base, **changes)


def classes(count: int = 100, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Returns points in four dimensions and which of the first three is the largest."""
    x = np.random.default_rng(seed).normal(size=(count, 4))
    return x, x[:, :3].argmax(axis=1)


def weighted(count: int = 100) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the same with weights from 0 to 2."""
    x, y = classes(count)
    return x, y, np.arange(count) % 3


def two_inputs(count: int = 40) -> dict[str, np.ndarray]:
    """Returns two inputs and their sum."""
    rng = np.random.default_rng(3)
    left, right = rng.normal(size=(2, count, 2))
    return {"left": left, "right": right, "y": (left + right).sum(axis=1)}


def nothing() -> list[int]:
    """Returns what is not a dataset."""
    return [1]


def classifier(units: int = 8, dropout: float = 0.5, width: int = 3) -> tf_keras.Model:
    """Returns a classifier with dropout and batch normalization."""
    return tf_keras.Sequential(
        [
            tf_keras.layers.Input([4]),
            tf_keras.layers.Dense(units, activation="relu"),
            tf_keras.layers.BatchNormalization(),
            tf_keras.layers.Dropout(dropout),
            tf_keras.layers.Dense(width),
        ]
    )


def adder() -> tf_keras.Model:
    """Returns a regression with two inputs."""
    left, right = tf_keras.Input([2], name="left"), tf_keras.Input([2], name="right")
    joined = tf_keras.layers.Concatenate()([left, right])
    return tf_keras.Model({"left": left, "right": right}, tf_keras.layers.Dense(1)(joined))


class Subclassed(tf_keras.Model):
    """A model that creates its variables when it is first called."""

    def __init__(self, units: int = 8) -> None:
        super().__init__()
        self.hidden = tf_keras.layers.Dense(units)
        self.dropout = tf_keras.layers.Dropout(0.5)
        self.out = tf_keras.layers.Dense(3)

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        return self.out(self.dropout(self.hidden(inputs), training=training))


class OwnLoop(Subclassed):
    """A model that has its own loop over the batches."""

    def make_train_function(self, force: bool = False) -> Any:
        return None


class WrongLogs(Subclassed):
    """A model whose step returns no logs."""

    def train_step(self, data: Any) -> Any:
        return []


def wrong_logs() -> tf_keras.Model:
    """Returns a model whose step returns no logs."""
    return WrongLogs()


def wrong_input() -> tf_keras.Model:
    """Returns a model for five numbers."""
    return tf_keras.Sequential([tf_keras.layers.Input([5]), tf_keras.layers.Dense(3)])


def not_a_model() -> int:
    """Returns a number."""
    return 3


def squared(y_true: tf.Tensor, y_pred: tf.Tensor, factor: float = 1.0) -> tf.Tensor:
    """A loss as a function."""
    return factor * tf.reduce_mean(tf.square(y_true - y_pred), axis=-1)


class LargestOutput(tf_keras.metrics.Mean):
    """The mean of the largest output of each example."""

    def update_state(
        self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: tf.Tensor | None = None
    ) -> None:
        super().update_state(tf.reduce_max(y_pred, axis=-1), sample_weight)


def numbers(count: int = 37) -> tuple[np.ndarray, np.ndarray]:
    """Returns three numbers and whether their sum is positive. The first example is far away."""
    x = np.random.default_rng(5).normal(size=(count, 3)).astype(np.float32)
    x[0] = 5.0  # Rows that fill up a batch are copies of it.
    return x, (x.sum(axis=1) > 0).astype(np.float32)


def weighted_numbers(count: int = 37) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the same with weights, many of which are 0."""
    return *numbers(count), (np.arange(count) % 3).astype(np.float32)


def regularized(activity: float = 0.0) -> tf_keras.Model:
    """Returns a model with activity regularization, which depends on all rows of a batch."""
    l2 = tf_keras.regularizers.L2
    start = tf_keras.initializers.GlorotUniform(seed=3)
    inputs = tf_keras.Input((3,))
    hidden = tf_keras.layers.Dense(
        4,
        kernel_initializer=start,
        kernel_regularizer=l2(0.01),
        activity_regularizer=l2(activity) if activity else None,
    )(inputs)
    outputs = tf_keras.layers.Dense(1, activation="sigmoid", kernel_initializer=start)(hidden)
    return tf_keras.Model(inputs, outputs)


def mean_squared(y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
    """A loss with one value for the whole batch."""
    return tf.reduce_mean(tf.square(y_true - y_pred))


class Rows(tf_keras.metrics.Metric):
    """Counts rows, without weights."""

    def __init__(self, name: str = "rows", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)
        self.count = self.add_weight(name="count", initializer="zeros")

    def update_state(
        self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: tf.Tensor | None = None
    ) -> None:
        # In Keras, both have the same rank; the mean of nothing is not a number.
        width = tf.reduce_mean(tf.ones_like(y_pred[..., 0]))
        self.count.assign_add(tf.cast(tf.shape(y_true)[0], tf.float32) * width)

    def result(self) -> tf.Tensor:
        return tf.identity(self.count)


class EachClass(tf_keras.metrics.Metric):
    """Counts the labels of each of three classes."""

    def __init__(self, name: str = "each_class", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)
        self.counts = self.add_weight(name="counts", shape=[3], initializer="zeros")

    def update_state(
        self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: tf.Tensor | None = None
    ) -> None:
        one_hot = tf.one_hot(tf.cast(tf.reshape(y_true, [-1]), tf.int32), 3)
        self.counts.assign_add(tf.reduce_sum(one_hot, axis=0))

    def result(self) -> tf.Tensor:
        return tf.identity(self.counts)


class Gap(tf_keras.metrics.Mean):
    """The mean difference of label and output. The weights have the shape of the values."""

    def update_state(
        self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: tf.Tensor | None = None
    ) -> None:
        values = tf.abs(y_true - y_pred)
        if sample_weight is not None:
            sample_weight = tf.broadcast_to(tf.cast(sample_weight, values.dtype), values.shape)
        super().update_state(values, sample_weight)


class Largest(tf_keras.metrics.Metric):
    """The largest distance of an output from 0.5, a state that is not a sum."""

    def __init__(self, name: str = "largest", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)
        self.value = self.add_weight(name="value", initializer="zeros")

    def update_state(
        self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: tf.Tensor | None = None
    ) -> None:
        largest = tf.reduce_max(tf.abs(y_pred - 0.5))
        self.value.assign(tf.maximum(self.value, largest))

    def result(self) -> tf.Tensor:
        return tf.identity(self.value)


def total_size(variables: Any) -> int:
    """Returns how many numbers variables have together."""
    return sum(variable.shape.num_elements() for variable in variables)
