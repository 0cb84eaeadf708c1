"""Models, losses and metrics of Keras 3, as a user of the task `keras` writes them."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np


def classifier(units: int = 8, dropout: float = 0.5, trains_hidden: bool = True) -> keras.Model:
    """Returns a classifier with dropout, batch normalization and regularization."""
    hidden = keras.layers.Dense(units, activation="relu", kernel_regularizer="l2")
    hidden.trainable = trains_hidden
    return keras.Sequential(
        [
            keras.Input([4]),
            hidden,
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(dropout),
            keras.layers.Dense(3),
        ]
    )


class Subclassed(keras.Model):
    """A model that creates its variables when it is called first, and adds a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = keras.layers.Dense(8, activation="relu")
        self.noise = keras.layers.GaussianNoise(0.1)
        self.generator = keras.random.SeedGenerator()
        self.blocks = [keras.layers.Dense(8) for _ in range(2)]
        self.out = keras.layers.Dense(3)

    def call(self, inputs: Any, training: bool = False) -> Any:
        hidden = self.noise(self.hidden(inputs), training=training)
        if training:
            hidden += keras.random.normal(keras.ops.shape(hidden), stddev=0.1, seed=self.generator)
            hidden += keras.random.normal(keras.ops.shape(hidden), stddev=0.1)
        for block in self.blocks:
            hidden = block(hidden)
        self.add_loss(1e-3 * keras.ops.mean(keras.ops.square(hidden)))
        return self.out(hidden)


def masked(dropout: float = 0.2) -> keras.Model:
    """Returns a classifier of sentences, whose word 0 is no word."""
    inputs = keras.Input([6], dtype="int32")
    words = keras.layers.Embedding(9, 4, mask_zero=True)(inputs)
    state = keras.layers.LSTM(5, dropout=dropout)(words)
    return keras.Model(inputs, keras.layers.Dense(3)(state))


def sentences(count: int = 50) -> tuple[np.ndarray, np.ndarray]:
    """Returns sentences of up to 6 words, and their lengths modulo 3."""
    rng = np.random.default_rng(4)
    words = rng.integers(1, 9, (count, 6)).astype(np.int32)
    lengths = rng.integers(1, 7, count)
    words[np.arange(6) >= lengths[:, None]] = 0
    return words, lengths % 3


def wrong_input() -> keras.Model:
    """Returns a model for five numbers."""
    return keras.Sequential([keras.Input([5]), keras.layers.Dense(3)])


class Squared(keras.losses.Loss):
    """The squared distance of logits from one-hot labels, times a factor."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.factor = factor

    def call(self, y_true: Any, y_pred: Any) -> Any:
        one_hot = keras.ops.one_hot(keras.ops.cast(keras.ops.reshape(y_true, [-1]), "int32"), 3)
        return self.factor * keras.ops.mean(keras.ops.square(one_hot - y_pred), axis=-1)


class LargestOutput(keras.metrics.Metric):
    """The largest output of all batches."""

    def __init__(self, name: str = "largest") -> None:
        super().__init__(name=name)
        self.largest = self.add_variable((), "zeros", name="largest")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.largest.assign(keras.ops.maximum(self.largest, keras.ops.max(y_pred)))

    def result(self) -> Any:
        return self.largest + 0.0

    def reset_state(self) -> None:
        self.largest.assign(0.0)


def texts(count: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Returns texts of five words, and whether most of them are good."""
    rng = np.random.default_rng(5)
    is_good = rng.integers(0, 2, (count, 5))
    words = np.where(is_good, "good", "bad")
    return np.array([" ".join(row) for row in words]), (is_good.sum(axis=1) > 2).astype(np.int64)


def reader() -> keras.Model:
    """Returns a classifier of texts, whose layers have a table and draw in inference, too."""
    vectorize = keras.layers.TextVectorization(max_tokens=9, output_sequence_length=5)
    vectorize.adapt(texts()[0])
    inputs = keras.Input([], dtype="string")
    words = keras.layers.Embedding(9, 4, mask_zero=True)(vectorize(inputs))
    state = keras.layers.LSTM(5, dropout=0.2)(words)
    return keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid")(state))
