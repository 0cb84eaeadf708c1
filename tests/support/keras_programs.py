"""Models and data of Keras 3 as its guides write them, of eleven kinds."""

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


def _sentences() -> tuple[np.ndarray, np.ndarray]:
    rng = _rng()
    words = rng.choice(_WORDS, size=(64, 6))
    good = np.isin(words, ("good", "fine", "great")).sum(axis=1)
    bad = np.isin(words, ("bad", "poor", "dull")).sum(axis=1)
    return np.array([" ".join(row) for row in words]), (good > bad).astype(np.int32)


def text_classifier() -> keras.Model:
    """Returns a model that begins with an adapted `TextVectorization`."""
    vectorize = layers.TextVectorization(max_tokens=20, output_sequence_length=6)
    vectorize.adapt(_sentences()[0])
    inputs = keras.Input(shape=(), dtype="string")
    x = layers.Embedding(20, 8)(vectorize(inputs))
    x = layers.Dropout(0.5)(layers.GlobalMaxPooling1D()(x))
    return keras.Model(inputs, layers.Dense(1, activation="sigmoid")(x))


def reviews() -> tuple[np.ndarray, np.ndarray]:
    """Returns reviews and whether they are positive."""
    return _sentences()


def bidirectional() -> keras.Model:
    """Returns a bidirectional LSTM with masks."""
    inputs = keras.Input(shape=(None,), dtype="int32")
    x = layers.Embedding(30, 8, mask_zero=True)(inputs)
    x = layers.Bidirectional(layers.LSTM(4, return_sequences=True, dropout=0.2))(x)
    x = layers.Bidirectional(layers.LSTM(4))(x)
    return keras.Model(inputs, layers.Dense(1, activation="sigmoid")(x))


def sequences() -> tuple[np.ndarray, np.ndarray]:
    """Returns padded sequences of words and their classes."""
    x = _rng().integers(30, size=(64, 10))
    x[:, 7:] = 0
    return x, (x[:, 0] > 14).astype(np.int32)


class Distance(layers.Layer):
    """The Euclidean distance of two embeddings."""

    def call(self, first: Any, second: Any) -> Any:
        """Returns the distances, [batch, 1]."""
        squares = ops.sum(ops.square(first - second), axis=1, keepdims=True)
        return ops.sqrt(ops.maximum(squares, 1e-7))


def siamese() -> keras.Model:
    """Returns the distance of two inputs, which one network embeds."""
    embed = keras.Sequential([layers.Dense(8, activation="tanh"), layers.Dense(4)])
    left, right = keras.Input((6,), name="left"), keras.Input((6,), name="right")
    return keras.Model([left, right], Distance()(embed(left), embed(right)))


def contrastive(y_true: Any, y_pred: Any) -> Any:
    """Returns the contrastive loss of pairs."""
    y_true = ops.cast(y_true, y_pred.dtype)
    margin = ops.square(ops.maximum(1.0 - y_pred, 0))
    return ops.mean((1 - y_true) * ops.square(y_pred) + y_true * margin, axis=-1)


def pairs() -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Returns pairs of points, and whether they are of different kinds."""
    rng = _rng()
    left, right = rng.normal(size=(2, 64, 6))
    return {"left": left, "right": right}, (left[:, 0] * right[:, 0] < 0).astype(np.int32)


def autoencoder() -> keras.Model:
    """Returns a convolutional autoencoder."""
    inputs = keras.Input(shape=(8, 8, 1))
    x = layers.Conv2D(8, 3, activation="relu", padding="same")(inputs)
    x = layers.MaxPooling2D(2, padding="same")(x)
    x = layers.Conv2DTranspose(8, 3, strides=2, activation="relu", padding="same")(x)
    return keras.Model(inputs, layers.Conv2D(1, 3, activation="sigmoid", padding="same")(x))


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Returns images, and the same images as labels."""
    images = _rng().random((64, 8, 8, 1))
    return images, images


def fine_tuned() -> keras.Model:
    """Returns a frozen network of Keras' applications with a new head."""
    base = keras.applications.MobileNetV2(
        input_shape=(32, 32, 3), alpha=0.35, include_top=False, weights=None
    )
    base.trainable = False
    inputs = keras.Input(shape=(32, 32, 3))
    x = keras.applications.mobilenet_v2.preprocess_input(inputs)
    x = layers.GlobalAveragePooling2D()(base(x, training=False))
    return keras.Model(inputs, layers.Dense(3)(layers.Dropout(0.2)(x)))


def photos() -> tuple[np.ndarray, np.ndarray]:
    """Returns small color images and their classes."""
    rng = _rng()
    return rng.integers(256, size=(48, 32, 32, 3)).astype(np.float32), rng.integers(3, size=48)


def of_features() -> keras.Model:
    """Returns a model with layers that preprocess the columns of a table."""
    age = keras.Input(shape=(1,), name="age")
    city = keras.Input(shape=(1,), name="city", dtype="string")
    normalize = layers.Normalization()
    normalize.adapt(np.arange(20.0, 70.0)[:, None])
    look_up = layers.StringLookup(vocabulary=["Oslo", "Rome"], output_mode="one_hot")
    x = layers.concatenate([normalize(age), look_up(city)])
    x = layers.Dropout(0.5)(layers.Dense(16, activation="relu")(x))
    return keras.Model({"age": age, "city": city}, layers.Dense(1, activation="sigmoid")(x))


def people() -> dict[str, np.ndarray]:
    """Returns columns of a table."""
    rng = _rng()
    age = rng.integers(20, 70, 64).astype(np.float32)
    city = rng.choice(["Oslo", "Rome", "Bonn"], 64)
    return {"age": age, "city": city, "y": ((age > 40) ^ (city == "Oslo")).astype(np.int32)}


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


def regression_network() -> keras.Model:
    """Returns a small regression."""
    hidden = layers.Dense(8, activation="gelu")
    return keras.Sequential([keras.Input((4,)), hidden, layers.Dense(1)])


class Asymmetric(keras.losses.Loss):
    """A squared error that punishes values that are too small."""

    def __init__(self, factor: float = 3.0, name: str = "asymmetric") -> None:
        super().__init__(name=name)
        self.factor = factor

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """Returns the error of each example."""
        error = ops.cast(y_true, y_pred.dtype) - y_pred
        weighted = ops.where(error > 0, self.factor * error, error)
        return ops.mean(ops.square(weighted), axis=-1)


def points() -> tuple[np.ndarray, np.ndarray]:
    """Returns points and their classes."""
    x = _rng().normal(size=(64, 4))
    return x, x[:, :3].argmax(axis=1)


def sums() -> tuple[np.ndarray, np.ndarray]:
    """Returns points and the sums of their coordinates."""
    x = _rng().normal(size=(64, 4))
    return x, x.sum(axis=1)
