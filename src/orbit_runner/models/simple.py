"""The small networks: a multilayer perceptron, and a convolutional network for MNIST."""

from __future__ import annotations

from collections.abc import Sequence

import tf_keras

from orbit_runner.models.layers import normalized_input


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


def cnn(
    *,
    input_shape: Sequence[int],
    num_classes: int,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    input_dtype: str = "uint8",
    filters: Sequence[int] = (32, 64),
    kernel_size: int = 5,
    dense_units: int = 1024,
    dropout_rate: float = 0.4,
) -> tf_keras.Model:
    """Returns convolutions with max pooling, a dense layer, dropout and a classifier.

    The model maps raw pixels [batch, height, width, channels] to float32 logits [batch,
    num_classes]. `mean` and `std` are those of `Normalize`. The pooling after each convolution
    halves the size.

    With the defaults and 28 x 28 x 1 pixels, the model has 3,274,634 parameters. This is the
    classic MNIST network with LeNet's alternation of 5 x 5 convolutions and pooling (LeCun et al.
    1998, section II.B).
    """
    layers = tf_keras.layers
    inputs, x = normalized_input(input_shape, input_dtype, mean, std)
    for index, width in enumerate(filters, start=1):
        x = layers.Conv2D(
            width, kernel_size, padding="same", activation="relu", name=f"conv{index}"
        )(x)
        x = layers.MaxPool2D(2, padding="same", name=f"pool{index}")(x)
    x = layers.Flatten(name="flatten")(x)
    x = layers.Dense(dense_units, activation="relu", name="dense")(x)
    if dropout_rate:
        x = layers.Dropout(dropout_rate, name="dropout")(x)
    # The softmax of the loss is not accurate enough in 16 bits.
    logits = layers.Dense(num_classes, dtype="float32", name="logits")(x)
    return tf_keras.Model(inputs, logits, name="cnn")
