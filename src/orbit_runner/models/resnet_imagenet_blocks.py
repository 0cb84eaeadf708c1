"""Residual blocks for large images, as functions on tensors: versions 1 and 2, two types each.

Kernels, padding and batch normalization are those of `resnet_blocks.py`. A block has `filters`
output channels; the convolutions inside a bottleneck have a quarter of that. Shapes are those of
`Block`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import tensorflow as tf
import tf_keras

from orbit_runner.models.resnet_blocks import Norm, convolution, norm_relu

_BOTTLENECK_RATIO = 4


@dataclasses.dataclass(frozen=True)
class Norms:
    """The batch normalization layers of a network."""

    inner: Norm  # All but the last of a block.
    last: Norm  # The last of a block, before the addition.


# `block(x, filters, stride, name, norms)` maps [batch, height, width, channels] to
# [batch, ceil(height / stride), ceil(width / stride), filters].
Block = Callable[[tf.Tensor, int, int, str, Norms], tf.Tensor]


def _project(x: tf.Tensor, filters: int, stride: int, name: str, norms: Norms) -> tf.Tensor:
    """Returns a type B shortcut: a projection if the shape changes, otherwise `x`.

    He et al. 2015, section 3.3 (B).
    """
    if stride == 1 and x.shape[-1] == filters:
        return x
    projection = convolution(x, filters, 1, f"{name}_shortcut", stride)
    return norms.inner(projection, f"{name}_shortcut_bn")


def _add_shortcut(x: tf.Tensor, shortcut: tf.Tensor, name: str) -> tf.Tensor:
    x = tf_keras.layers.Add(name=f"{name}_add")([x, shortcut])
    return tf_keras.layers.ReLU(name=f"{name}_relu")(x)


def basic_v1(x: tf.Tensor, filters: int, stride: int, name: str, norms: Norms) -> tf.Tensor:
    """Returns two 3 x 3 convolutions with a shortcut, and ReLU after the addition.

    He et al. 2015, figure 5 left. The first convolution has the stride.
    """
    shortcut = _project(x, filters, stride, name, norms)
    x = convolution(x, filters, 3, f"{name}_conv1", stride)
    x = convolution(norm_relu(x, f"{name}_conv1", norms.inner), filters, 3, f"{name}_conv2")
    return _add_shortcut(norms.last(x, f"{name}_conv2_bn"), shortcut, name)


def bottleneck_v1(x: tf.Tensor, filters: int, stride: int, name: str, norms: Norms) -> tf.Tensor:
    """Returns 1 x 1, 3 x 3 and 1 x 1 convolutions with a shortcut, and ReLU after the addition.

    He et al. 2015, figure 5 right. The first convolution has the stride, as in the models that the
    authors released; in version 1.5, the second one has it.
    """
    shortcut, inner = _project(x, filters, stride, name, norms), filters // _BOTTLENECK_RATIO
    x = convolution(x, inner, 1, f"{name}_conv1", stride)
    x = convolution(norm_relu(x, f"{name}_conv1", norms.inner), inner, 3, f"{name}_conv2")
    x = convolution(norm_relu(x, f"{name}_conv2", norms.inner), filters, 1, f"{name}_conv3")
    return _add_shortcut(norms.last(x, f"{name}_conv3_bn"), shortcut, name)


def _activate(
    x: tf.Tensor, filters: int, stride: int, name: str, norms: Norms, activated: bool
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the activated input of a pre-activation block, and its shortcut."""
    active = x if activated else norm_relu(x, f"{name}_conv1", norms.inner)
    if stride == 1 and x.shape[-1] == filters:
        return active, x
    return active, convolution(active, filters, 1, f"{name}_shortcut", stride)


def basic_v2(
    x: tf.Tensor, filters: int, stride: int, name: str, norms: Norms, activated: bool = False
) -> tf.Tensor:
    """Returns two pre-activated 3 x 3 convolutions, with nothing after the addition.

    He et al. 2016, figure 1(b). The first convolution has the stride. `activated` is True if `x` is
    already activated, as for the first block of the network (He et al. 2016, appendix).
    """
    x, shortcut = _activate(x, filters, stride, name, norms, activated)
    x = convolution(x, filters, 3, f"{name}_conv1", stride)
    x = convolution(norm_relu(x, f"{name}_conv2", norms.inner), filters, 3, f"{name}_conv2")
    return tf_keras.layers.Add(name=f"{name}_add")([x, shortcut])


def bottleneck_v2(
    x: tf.Tensor, filters: int, stride: int, name: str, norms: Norms, activated: bool = False
) -> tf.Tensor:
    """Returns a pre-activated bottleneck with the stride in its 3 x 3 convolution.

    He et al. 2016, figure 1(b) and section 4. The position of the stride is that of the
    ImageNet networks to which the paper's repository links. `activated` is as in `basic_v2`.
    """
    x, shortcut = _activate(x, filters, stride, name, norms, activated)
    inner = filters // _BOTTLENECK_RATIO
    x = convolution(x, inner, 1, f"{name}_conv1")
    x = convolution(norm_relu(x, f"{name}_conv2", norms.inner), inner, 3, f"{name}_conv2", stride)
    x = convolution(norm_relu(x, f"{name}_conv3", norms.inner), filters, 1, f"{name}_conv3")
    return tf_keras.layers.Add(name=f"{name}_add")([x, shortcut])
