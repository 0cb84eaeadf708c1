"""Residual networks for images of CIFAR's size."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf
import tf_keras

from orbit_runner.models.heads import recursion_limit_scope
from orbit_runner.models.normalize import normalized_input
from orbit_runner.models.resnet_blocks import (
    Norm,
    basic_block,
    bottleneck_block,
    convolution,
    norm_relu,
)
from orbit_runner.models.resnet_depths import blocks_per_stage

_STEM_FILTERS = 16
_STAGE_FILTERS = {1: (16, 32, 64), 2: (64, 128, 256)}


def resnet_cifar(
    *,
    input_shape: Sequence[int],
    num_classes: int,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    input_dtype: str = "uint8",
    depth: int = 20,
    version: int = 1,
    batch_norm_momentum: float = 0.9,
    batch_norm_epsilon: float = 1e-5,
    use_sync_bn: bool = False,
    dropout_rate: float = 0.0,
) -> tf_keras.Model:
    """Returns a residual network of three stages.

    Version 1 is He et al. 2015 ("Deep residual learning"), section 4.2: basic blocks, depth 6n+2,
    shortcuts without parameters. Version 2 is He et al. 2016 ("Identity mappings"), section 4 and
    appendix: pre-activation bottlenecks, depth 9n+2. Raises `ValueError` if the version does not
    have the depth.

    The model maps raw pixels [batch, height, width, channels] to float32 logits [batch,
    num_classes]. `mean` and `std` are those of `Normalize`. `dropout_rate` is for the pooled
    features; the papers use no dropout.
    """
    blocks = blocks_per_stage(depth, version)

    def norm(x: tf.Tensor, name: str) -> tf.Tensor:
        return tf_keras.layers.BatchNormalization(
            momentum=batch_norm_momentum,
            epsilon=batch_norm_epsilon,
            synchronized=use_sync_bn,
            name=name,
        )(x)

    inputs, x = normalized_input(input_shape, input_dtype, mean, std)
    x = convolution(x, _STEM_FILTERS, 3, "stem_conv")
    x = _stages_v1(x, blocks, norm) if version == 1 else _stages_v2(x, blocks, norm)
    x = tf_keras.layers.GlobalAveragePooling2D(name="pool")(x)
    if dropout_rate:
        x = tf_keras.layers.Dropout(dropout_rate, name="dropout")(x)
    # The softmax of the loss is not accurate enough in 16 bits.
    logits = tf_keras.layers.Dense(
        num_classes, kernel_initializer="he_normal", dtype="float32", name="logits"
    )(x)
    with recursion_limit_scope(4 * depth):
        return tf_keras.Model(inputs, logits, name=f"resnet{depth}_v{version}")


def _stages_v1(x: tf.Tensor, blocks: int, norm: Norm) -> tf.Tensor:
    x = norm_relu(x, "stem_conv", norm)
    for filters, stride, name in _block_plan(1, blocks):
        x = basic_block(x, filters, stride, name, norm)
    return x


def _stages_v2(x: tf.Tensor, blocks: int, norm: Norm) -> tf.Tensor:
    for filters, stride, name in _block_plan(2, blocks):
        x = bottleneck_block(x, filters, stride, name, norm)
    return norm_relu(x, "final", norm)


def _block_plan(version: int, blocks: int) -> list[tuple[int, int, str]]:
    """Returns channels, stride and name of each block; stages 2 and 3 start by halving the size."""
    return [
        (filters, 2 if stage > 1 and block == 1 else 1, f"stage{stage}_block{block}")
        for stage, filters in enumerate(_STAGE_FILTERS[version], start=1)
        for block in range(1, blocks + 1)
    ]
