"""Neural collaborative filtering (He et al. 2017)."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf
import tf_keras

layers = tf_keras.layers


def neumf(
    *,
    num_users: int,
    num_items: int,
    mf_dim: int = 8,
    layer_sizes: Sequence[int] = (64, 32, 16, 8),
    mf_regularization: float = 0.0,
    mlp_regularization: float = 0.0,
) -> tf_keras.Model:
    """Returns a network that scores how well an item suits a user.

    The model maps `user` and `item`, int32 [batch], to float32 logits [batch]. It is described in
    He, Liao, Zhang, Nie, Hu and Chua, Neural Collaborative Filtering, WWW 2017, equations 8 to 12:
    the product of two embeddings (GMF) and dense ReLU layers on two others (MLP), side by side, and
    one linear layer on top.

    `num_users` and `num_items` are one more than the largest id. `layer_sizes` are the widths of
    the MLP. The first, an even number, is that of its input, two embeddings of half that width.
    The regularization factors are for the squared embeddings, and for the squared kernels of the
    MLP.
    """
    user = tf_keras.Input((), dtype="int32", name="user")
    item = tf_keras.Input((), dtype="int32", name="item")
    factors = [
        _embedding(num_users, mf_dim, "mf_user", mf_regularization)(user),
        _embedding(num_items, mf_dim, "mf_item", mf_regularization)(item),
    ]
    half = layer_sizes[0] // 2
    pair = [
        _embedding(num_users, half, "mlp_user", mlp_regularization)(user),
        _embedding(num_items, half, "mlp_item", mlp_regularization)(item),
    ]
    branches = [
        layers.Multiply(name="gmf")(factors),
        _mlp_tower(pair, layer_sizes[1:], mlp_regularization),
    ]
    x = layers.Concatenate(name="fusion")(branches)
    # The initializer is that of the published code; the loss needs more than 16 bits.
    logit = layers.Dense(1, kernel_initializer="lecun_uniform", dtype="float32", name="logit")(x)
    return tf_keras.Model(
        {"user": user, "item": item}, layers.Reshape((), dtype="float32")(logit), name="neumf"
    )


def _mlp_tower(
    pair: Sequence[tf.Tensor], widths: Sequence[int], regularization: float
) -> tf.Tensor:
    x = layers.Concatenate(name="mlp_input")(pair)
    for index, width in enumerate(widths, start=1):
        x = layers.Dense(
            width,
            activation="relu",
            kernel_regularizer=_l2_regularizer(regularization),
            name=f"mlp_dense{index}",
        )(x)
    return x


def _embedding(count: int, width: int, name: str, regularization: float) -> tf_keras.layers.Layer:
    # Section 4.1: normal with a standard deviation of 0.01.
    return layers.Embedding(
        count,
        width,
        embeddings_initializer=tf_keras.initializers.RandomNormal(stddev=0.01),
        embeddings_regularizer=_l2_regularizer(regularization),
        name=name,
    )


def _l2_regularizer(weight: float) -> tf_keras.regularizers.Regularizer | None:
    return tf_keras.regularizers.L2(weight) if weight else None
