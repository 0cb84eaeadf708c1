"""A multilayer perceptron."""

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
    """Returns dense ReLU layers, each followed by dropout, and a classifier.

    The model maps raw pixels [batch, *input_shape] to float32 logits [batch, num_classes]. `mean`
    and `std` are those of `Normalize`. If `hidden_units` is empty, the model is a linear
    classifier.
    """
    layers = tf_keras.layers
    inputs, x = normalized_input(input_shape, input_dtype, mean, std)
    x = layers.Flatten(name="flatten")(x)
    for index, width in enumerate(hidden_units, start=1):
        x = layers.Dense(width, activation="relu", name=f"dense{index}")(x)
        if dropout_rate:
            x = layers.Dropout(dropout_rate, name=f"dropout{index}")(x)
    # The softmax of the loss is not accurate enough in 16 bits.
    logits = layers.Dense(num_classes, dtype="float32", name="logits")(x)
    return tf_keras.Model(inputs, logits, name="mlp")
