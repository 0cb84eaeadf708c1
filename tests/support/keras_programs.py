"""Models and data of Keras 3 as its guides write them."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import layers, ops

_WORDS = ("good", "bad", "fine", "poor", "film", "plot", "great", "dull")


def _rng() -> np.random.Generator:
    return np.random.default_rng(0)


def image_classifier() -> keras.Model:
    """Returns a convolutional network for images of a folder."""
    inputs = keras.Input(shape=(16, 16, 3))
    x = layers.RandomFlip("horizontal")(inputs)
    x = layers.RandomRotation(0.1)(x)
    x = layers.Rescaling(1.0 / 255)(x)
    for filters in (8, 16):
        x = layers.SeparableConv2D(filters, 3, padding="same")(x)
        x = layers.BatchNormalization()(x)
        x = layers.Activation("relu")(x)
        x = layers.MaxPooling2D(2)(x)
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.Dropout(0.25)(x)
    return keras.Model(inputs, layers.Dense(3)(x))


def two_by_two() -> keras.Model:
    """Returns a model of two inputs, the title and the tags of a ticket, with two outputs."""
    title = keras.Input(shape=(10,), dtype="int32", name="title")
    tags = keras.Input(shape=(4,), name="tags")
    text = layers.LSTM(8)(layers.Embedding(30, 8)(title))
    joined = layers.concatenate([text, tags])
    priority = layers.Dense(1, name="priority")(joined)
    department = layers.Dense(3, name="department")(joined)
    return keras.Model(
        inputs={"title": title, "tags": tags},
        outputs={"priority": priority, "department": department},
    )


def tickets() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Returns tickets with their priorities and departments."""
    rng = _rng()
    x = {"title": rng.integers(30, size=(64, 10)), "tags": rng.normal(size=(64, 4))}
    y = {"priority": x["tags"].sum(axis=1), "department": x["title"][:, 0] % 3}
    return x, y


def reviews() -> tuple[np.ndarray, np.ndarray]:
    """Returns reviews and whether they are positive."""
    rng = _rng()
    words = rng.choice(_WORDS, size=(64, 6))
    good = np.isin(words, ("good", "fine", "great")).sum(axis=1)
    bad = np.isin(words, ("bad", "poor", "dull")).sum(axis=1)
    return np.array([" ".join(row) for row in words]), (good > bad).astype(np.int32)


def text_classifier() -> keras.Model:
    """Returns a model that begins with an adapted `TextVectorization`."""
    vectorize = layers.TextVectorization(max_tokens=20, output_sequence_length=6)
    vectorize.adapt(reviews()[0])
    inputs = keras.Input(shape=(), dtype="string")
    x = layers.Embedding(20, 8)(vectorize(inputs))
    x = layers.Dropout(0.5)(layers.GlobalMaxPooling1D()(x))
    return keras.Model(inputs, layers.Dense(1, activation="sigmoid")(x))


class Linear(layers.Layer):
    """A dense layer with an activity regularization, written by hand."""

    def __init__(self, units: int = 8, rate: float = 1e-2) -> None:
        super().__init__()
        self.units = units
        self.rate = rate

    def build(self, input_shape: tuple[int, ...]) -> None:
        """Creates the variables."""
        self.w = self.add_weight(shape=(input_shape[-1], self.units), initializer="random_normal")
        self.b = self.add_weight(shape=(self.units,), initializer="zeros")
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, inputs: Any, training: bool = False) -> Any:
        """Returns the product with the weights."""
        if training:
            self.calls.assign_add(1.0)
        outputs = ops.matmul(inputs, self.w) + self.b
        self.add_loss(self.rate * ops.mean(ops.square(outputs)))
        return outputs


def of_own_layers() -> keras.Model:
    """Returns a model of layers of its own."""
    return keras.Sequential([keras.Input((4,)), Linear(8), layers.ReLU(), Linear(3)])


def small_network() -> keras.Model:
    """Returns a small classifier with dropout."""
    hidden = layers.Dense(8, activation="relu")
    return keras.Sequential([keras.Input((4,)), hidden, layers.Dropout(0.3), layers.Dense(3)])


def points() -> tuple[np.ndarray, np.ndarray]:
    """Returns points and their classes."""
    x = _rng().normal(size=(64, 4))
    return x, x[:, :3].argmax(axis=1)
