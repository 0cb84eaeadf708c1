"""The small networks: a multilayer perceptron, a convolutional network for MNIST, and NeuMF."""

from __future__ import annotations

import tf_keras

from orbit_runner.models.configs import CnnConfig, MlpConfig, NeuMFConfig
from orbit_runner.models.layers import ImageInput

layers = tf_keras.layers


def mlp(config: MlpConfig, images: ImageInput) -> tf_keras.Model:
    """Returns dense ReLU layers, each followed by dropout, and a classifier.

    The model maps raw pixels [batch, height, width, channels] to float32 logits [batch,
    num_classes]. If `hidden_units` is empty, it is a linear classifier.
    """
    inputs, x = images.normalized()
    x = layers.Flatten(name="flatten")(x)
    for index, width in enumerate(config.hidden_units, start=1):
        x = layers.Dense(width, activation="relu", name=f"dense{index}")(x)
        if config.dropout_rate:
            x = layers.Dropout(config.dropout_rate, name=f"dropout{index}")(x)
    # The softmax of the loss is not accurate enough in 16 bits.
    logits = layers.Dense(images.num_classes, dtype="float32", name="logits")(x)
    return tf_keras.Model(inputs, logits, name="mlp")


def cnn(config: CnnConfig, images: ImageInput) -> tf_keras.Model:
    """Returns convolutions with max pooling, a dense layer, dropout and a classifier.

    The model maps raw pixels [batch, height, width, channels] to float32 logits [batch,
    num_classes]. The pooling after each convolution halves the size.

    With the defaults and 28 x 28 x 1 pixels, the model has 3,274,634 parameters. This is the
    classic MNIST network with LeNet's alternation of 5 x 5 convolutions and pooling (LeCun et al.
    1998, section II.B).
    """
    inputs, x = images.normalized()
    for index, width in enumerate(config.filters, start=1):
        x = layers.Conv2D(
            width, config.kernel_size, padding="same", activation="relu", name=f"conv{index}"
        )(x)
        x = layers.MaxPool2D(2, padding="same", name=f"pool{index}")(x)
    x = layers.Flatten(name="flatten")(x)
    x = layers.Dense(config.dense_units, activation="relu", name="dense")(x)
    if config.dropout_rate:
        x = layers.Dropout(config.dropout_rate, name="dropout")(x)
    # The softmax of the loss is not accurate enough in 16 bits.
    logits = layers.Dense(images.num_classes, dtype="float32", name="logits")(x)
    return tf_keras.Model(inputs, logits, name="cnn")


def neumf(config: NeuMFConfig, *, num_users: int, num_items: int) -> tf_keras.Model:
    """Returns a network that scores how well an item suits a user.

    The model maps `user` and `item`, int32 [batch], to float32 logits [batch]. It is described in
    He, Liao, Zhang, Nie, Hu and Chua, Neural Collaborative Filtering, WWW 2017, equations 8 to 12:
    the product of two embeddings (GMF) and dense ReLU layers on two others (MLP), side by side, and
    one linear layer on top.

    `num_users` and `num_items` are one more than the largest id. `layers` of the config are the
    widths of the MLP. The first, an even number, is that of its input, two embeddings of half that
    width.
    """
    user = tf_keras.Input((), dtype="int32", name="user")
    item = tf_keras.Input((), dtype="int32", name="item")
    factors = [
        _embedding(num_users, config.mf_dim, "mf_user")(user),
        _embedding(num_items, config.mf_dim, "mf_item")(item),
    ]
    half = config.layers[0] // 2
    pair = [
        _embedding(num_users, half, "mlp_user")(user),
        _embedding(num_items, half, "mlp_item")(item),
    ]
    gmf = layers.Multiply(name="gmf")(factors)
    x = layers.Concatenate(name="mlp_input")(pair)
    for index, width in enumerate(config.layers[1:], start=1):
        x = layers.Dense(width, activation="relu", name=f"mlp_dense{index}")(x)
    x = layers.Concatenate(name="fusion")([gmf, x])
    # The initializer is that of the published code; the loss needs more than 16 bits.
    logit = layers.Dense(1, kernel_initializer="lecun_uniform", dtype="float32", name="logit")(x)
    return tf_keras.Model(
        {"user": user, "item": item}, layers.Reshape((), dtype="float32")(logit), name="neumf"
    )


def _embedding(count: int, width: int, name: str) -> tf_keras.layers.Layer:
    # Section 4.1: normal with a standard deviation of 0.01.
    return layers.Embedding(
        count,
        width,
        embeddings_initializer=tf_keras.initializers.RandomNormal(stddev=0.01),
        name=name,
    )
