"""A perceptron with hidden layers."""

from __future__ import annotations

from collections.abc import Sequence

import tf_keras

from orbit_runner.models.normalize import normalized_input


def mlp(
    *,
    input_shape: Sequence[int],
    num_classes: int,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    input_dtype: str = "uint8",
    hidden_units: Sequence[int] = (128, 64),
    dropout_rate: float = 0.0,
) -> tf_keras.Model:
    """Builds dense ReLU layers, each with dropout behind it, and a classifier.

    Args:
        input_shape: The shape of one example, channels last.
        num_classes: The number of logits.
        mean: What to subtract from each channel, in raw pixel units; None for nothing.
        std: What to divide each channel by, in raw pixel units; None for nothing.
        input_dtype: The dtype of the raw pixels.
        hidden_units: The width of each hidden layer; empty for a linear classifier.
        dropout_rate: The share of hidden units left out in training.

    Returns:
        A model from `[batch, *input_shape]` raw pixels to `[batch, num_classes]` logits in float32.

    Raises:
        ValueError: If `mean` or `std` do not fit the channels.
    """
    layers = tf_keras.layers
    inputs, x = normalized_input(input_shape, input_dtype, mean, std)
    x = layers.Flatten(name="flatten")(x)
    for index, width in enumerate(hidden_units, start=1):
        x = layers.Dense(width, activation="relu", name=f"dense{index}")(x)
        if dropout_rate:
            x = layers.Dropout(dropout_rate, name=f"dropout{index}")(x)
    # The softmax of the loss loses too much in 16 bits.
    logits = layers.Dense(num_classes, dtype="float32", name="logits")(x)
    return tf_keras.Model(inputs, logits, name="mlp")
