"""The end of the networks for large images: features to logits, and the model around both."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
import tf_keras


def classifier(
    inputs: tf.Tensor,
    features: tf.Tensor,
    *,
    num_classes: int,
    dropout_rate: float,
    kernel_initializer: Any,
    name: str,
    depth: int = 0,
) -> tf_keras.Model:
    """Pools features over all pixels, puts a dense layer on them, and makes the model.

    Args:
        inputs: The symbolic input of the network.
        features: `[batch, height, width, channels]`.
        num_classes: The number of logits.
        dropout_rate: The share of the pooled features left out in training.
        kernel_initializer: How the kernel of the dense layer starts; its bias starts at 0.
        name: The name of the model.
        depth: The number of convolutions on the longest path that are layers of this model, which
            says how deep Keras will recurse.

    Returns:
        A model to `[batch, num_classes]` logits in float32.
    """
    x = tf_keras.layers.GlobalAveragePooling2D(name="pool")(features)
    if dropout_rate:
        x = tf_keras.layers.Dropout(dropout_rate, name="dropout")(x)
    # The softmax of the loss loses too much in 16 bits.
    logits = tf_keras.layers.Dense(
        num_classes, kernel_initializer=kernel_initializer, dtype="float32", name="logits"
    )(x)
    with room_for_recursion(4 * depth):
        return tf_keras.Model(inputs, logits, name=name)


@contextlib.contextmanager
def room_for_recursion(frames: int) -> Iterator[None]:
    """Raises Python's recursion limit for a while: Keras walks a model one frame a layer.

    Args:
        frames: How many frames more than usual.
    """
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(before + frames)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
