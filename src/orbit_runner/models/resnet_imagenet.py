"""Residual networks for images of ImageNet's size, except version 1.5, which is in `resnet.py`."""

from __future__ import annotations

import functools

import tensorflow as tf
import tf_keras

from orbit_runner.models.resnet_blocks import convolution, norm_relu
from orbit_runner.models.resnet_imagenet_blocks import (
    Block,
    Norms,
    basic_v1,
    basic_v2,
    bottleneck_v1,
    bottleneck_v2,
)

# He et al. 2015, table 1; 200 layers: He et al. 2016, section 4.
_BLOCKS = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
    200: (3, 24, 36, 3),
}
_BOTTLENECK_FROM = 50
_STEM_FILTERS = 64


def resnet_features(x: tf.Tensor, depth: int, version: int, norms: Norms) -> tf.Tensor:
    """Returns the features of a residual network before the global pooling.

    Maps [batch, height, width, channels], normalized, to [batch, ceil(height / 32), ceil(width /
    32), 512], or 2048 channels if `depth` is at least 50. `depth` is 18, 34, 50, 101, 152 or 200.
    `version` is 1 (He et al. 2015) or 2 (pre-activation, He et al. 2016).
    """
    x = norm_relu(convolution(x, _STEM_FILTERS, 7, "stem_conv", 2), "stem_conv", norms.inner)
    # After a ReLU, padding with zeros does not change the maximum.
    x = tf_keras.layers.ZeroPadding2D(1, name="stem_pool_pad")(x)
    x = tf_keras.layers.MaxPool2D(3, 2, padding="valid", name="stem_pool")(x)
    current, block = _block_functions(depth, version)
    for filters, stride, name in _block_plan(depth):
        x, current = current(x, filters, stride, name, norms), block
    return norm_relu(x, "final", norms.inner) if version == 2 else x


def _block_functions(depth: int, version: int) -> tuple[Block, Block]:
    """Returns the first block and the others; in version 2, the first has an activated input."""
    deep = depth >= _BOTTLENECK_FROM
    if version == 1:
        return (bottleneck_v1, bottleneck_v1) if deep else (basic_v1, basic_v1)
    block = bottleneck_v2 if deep else basic_v2
    return functools.partial(block, activated=True), block


def _block_plan(depth: int) -> list[tuple[int, int, str]]:
    """Returns channels, stride and name of each block; stages 2 to 4 start by halving the size."""
    width = 4 * _STEM_FILTERS if depth >= _BOTTLENECK_FROM else _STEM_FILTERS
    return [
        (
            width * 2 ** (stage - 1),
            2 if stage > 1 and block == 1 else 1,
            f"stage{stage}_block{block}",
        )
        for stage, blocks in enumerate(_BLOCKS[depth], start=1)
        for block in range(1, blocks + 1)
    ]
