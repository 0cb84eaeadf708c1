"""The input of every image network, which normalizes raw pixels, and the classifier of most."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras


@tf_keras.utils.register_keras_serializable(package="orbit_runner")
class Normalize(tf_keras.layers.Layer):
    """Subtracts a mean and divides by a standard deviation, per channel, without variables.

    `mean` and `std` have one value per channel or one for all, in the unit of the input. None means
    a mean of 0 or a standard deviation of 1. Raises `ValueError` if a standard deviation is not
    positive.
    """

    def __init__(
        self,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        **kwargs: Any,
    ) -> None:
        # Otherwise, Keras could cast a float input to 16 bits before the mean is subtracted.
        super().__init__(autocast=False, **kwargs)
        self.mean = None if mean is None else tuple(float(value) for value in mean)
        self.std = None if std is None else tuple(float(value) for value in std)
        if self.std is not None and not all(value > 0 for value in self.std):
            raise ValueError(f"`std` ({self.std}) must be positive in every channel.")

    def build(self, input_shape: tf.TensorShape) -> None:
        """Raises `ValueError` if the number of constants is neither 1 nor that of the channels."""
        channels = input_shape[-1]
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values is not None and len(values) not in (1, channels):
                raise ValueError(
                    f"`{name}` ({values}) must have 1 value or {channels}, one per channel."
                )
        super().build(input_shape)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Returns the normalized input in the same shape and the layer's compute dtype.

        The input has any numeric dtype and any shape with the channels last. The computation is in
        float32 and rounds once, at the end.
        """
        x = tf.cast(inputs, tf.float32)
        if self.mean is not None:
            x = x - tf.constant(self.mean, tf.float32)
        if self.std is not None:
            x = x / tf.constant(self.std, tf.float32)
        return tf.cast(x, self.compute_dtype)

    def get_config(self) -> dict[str, object]:
        """Returns the arguments of the constructor."""
        return {**super().get_config(), "mean": self.mean, "std": self.std}

    def without_this_package(self) -> tf_keras.layers.Layer:
        """Returns an equal layer of tf_keras."""
        mean, std = self.mean or (0.0,), self.std or (1.0,)
        width = max(len(mean), len(std))
        return tf_keras.layers.Normalization(
            mean=np.resize(mean, width),
            variance=np.square(np.resize(std, width)),
            name=self.name,
            dtype=self.dtype_policy,
        )


@dataclasses.dataclass(frozen=True)
class ImageInput:
    """What a network for images gets, and how many classes it tells apart.

    Attributes:
        shape: Height, width and channels.
        num_classes: The number of logits.
        mean: The mean of the pixels, as in `Normalize`.
        std: Their standard deviation.
        dtype: The type of raw pixels.
    """

    shape: Sequence[int]
    num_classes: int
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    dtype: str = "uint8"

    def normalized(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns a Keras input of raw pixels, and its normalized values.

        The input, named `image`, is [batch, *shape] of `dtype`, channels last. The normalized
        tensor has the same shape and the compute dtype of the global policy.
        """
        # Names of layers must not depend on what was built before in this process.
        tf_keras.backend.reset_uids()
        inputs = tf_keras.Input(shape=tuple(self.shape), dtype=self.dtype, name="image")
        return inputs, Normalize(self.mean, self.std, name="normalize")(inputs)


def classifier(
    inputs: tf.Tensor,
    features: tf.Tensor,
    *,
    num_classes: int,
    dropout_rate: float,
    kernel_initializer: str | tf_keras.initializers.Initializer,
    name: str,
    depth: int = 0,
) -> tf_keras.Model:
    """Returns a model that pools features and classifies them: float32 logits [batch, num_classes].

    `inputs` is the symbolic input of the network; `features` is [batch, height, width, channels].
    `depth` is the number of convolutions on the longest path that are layers of this model, which
    determines how deep Keras recurses.
    """
    x = tf_keras.layers.GlobalAveragePooling2D(name="pool")(features)
    if dropout_rate:
        x = tf_keras.layers.Dropout(dropout_rate, name="dropout")(x)
    # The softmax of the loss is not accurate enough in 16 bits.
    logits = tf_keras.layers.Dense(
        num_classes, kernel_initializer=kernel_initializer, dtype="float32", name="logits"
    )(x)
    with recursion_limit_scope(4 * depth):
        return tf_keras.Model(inputs, logits, name=name)


@contextlib.contextmanager
def recursion_limit_scope(frames: int) -> Iterator[None]:
    """Raises Python's recursion limit by `frames`, because Keras recurses once per layer."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(before + frames)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
