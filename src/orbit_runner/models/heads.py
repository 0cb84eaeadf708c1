"""The classifier of the networks for large images."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

import tensorflow as tf
import tf_keras


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
