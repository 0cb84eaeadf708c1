"""Residual blocks for large images, as functions on tensors: versions 1 and 2, two kinds each.

Kernels, padding and batch normalisation are those of `resnet_blocks.py`. A block ends in a width of
`filters`; of a bottleneck, that is four times the width inside.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import tensorflow as tf
import tf_keras

from orbit_runner.models.resnet_blocks import Norm, convolution, norm_relu

_SQUEEZE = 4


@dataclasses.dataclass(frozen=True)
class Norms:
    """The batch normalisations of a network.

    Attributes:
        inner: Any but the last of a block.
        last: The last of a block, before the addition.
    """

    inner: Norm
    last: Norm


Block = Callable[[tf.Tensor, int, int, str, Norms], tf.Tensor]
"""`block(x, filters, stride, name, norms)`: `[batch, height, width, channels]` to
`[batch, ceil(height / stride), ceil(width / stride), filters]`."""


def _project(x: tf.Tensor, filters: int, stride: int, name: str, norms: Norms) -> tf.Tensor:
    """Shortcut of kind B: a projection where the shape changes, else nothing.

    He et al. 2015, section 3.3 (B).
    """
    if stride == 1 and x.shape[-1] == filters:
        return x
    projection = convolution(x, filters, 1, f"{name}_shortcut", stride)
    return norms.inner(projection, f"{name}_shortcut_bn")


def _add(x: tf.Tensor, shortcut: tf.Tensor, name: str) -> tf.Tensor:
    x = tf_keras.layers.Add(name=f"{name}_add")([x, shortcut])
    return tf_keras.layers.ReLU(name=f"{name}_relu")(x)


def basic_v1(x: tf.Tensor, filters: int, stride: int, name: str, norms: Norms) -> tf.Tensor:
    """Applies two 3 x 3 convolutions beside a shortcut; ReLU comes after the addition.

    He et al. 2015, figure 5 left.

    Args:
        x: `[batch, height, width, channels]`.
        filters: The channels to come out with.
        stride: The step of the first convolution in pixels.
        name: The prefix of all layer names.
        norms: Make the batch normalisations.

    Returns:
        `[batch, ceil(height / stride), ceil(width / stride), filters]`.
    """
    shortcut = _project(x, filters, stride, name, norms)
    x = convolution(x, filters, 3, f"{name}_conv1", stride)
    x = convolution(norm_relu(x, f"{name}_conv1", norms.inner), filters, 3, f"{name}_conv2")
    return _add(norms.last(x, f"{name}_conv2_bn"), shortcut, name)


def bottleneck_v1(x: tf.Tensor, filters: int, stride: int, name: str, norms: Norms) -> tf.Tensor:
    """Applies 1 x 1, 3 x 3 and 1 x 1 convolutions beside a shortcut; ReLU after the addition.

    He et al. 2015, figure 5 right. The stride is that of the first convolution, as in the models
    that the authors released; version 1.5 has it in the second.

    Args:
        x: `[batch, height, width, channels]`.
        filters: The channels to come out with.
        stride: The step of the first convolution in pixels.
        name: The prefix of all layer names.
        norms: Make the batch normalisations.

    Returns:
        `[batch, ceil(height / stride), ceil(width / stride), filters]`.
    """
    shortcut, inner = _project(x, filters, stride, name, norms), filters // _SQUEEZE
    x = convolution(x, inner, 1, f"{name}_conv1", stride)
    x = convolution(norm_relu(x, f"{name}_conv1", norms.inner), inner, 3, f"{name}_conv2")
    x = convolution(norm_relu(x, f"{name}_conv2", norms.inner), filters, 1, f"{name}_conv3")
    return _add(norms.last(x, f"{name}_conv3_bn"), shortcut, name)


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
    """Applies two pre-activated 3 x 3 convolutions; nothing comes after the addition.

    He et al. 2016, figure 1(b).

    Args:
        x: `[batch, height, width, channels]`.
        filters: The channels to come out with.
        stride: The step of the first convolution in pixels.
        name: The prefix of all layer names.
        norms: Make the batch normalisations.
        activated: Whether `x` is activated already, as it is for the first block of all (He et al.
            2016, appendix).

    Returns:
        `[batch, ceil(height / stride), ceil(width / stride), filters]`.
    """
    x, shortcut = _activate(x, filters, stride, name, norms, activated)
    x = convolution(x, filters, 3, f"{name}_conv1", stride)
    x = convolution(norm_relu(x, f"{name}_conv2", norms.inner), filters, 3, f"{name}_conv2")
    return tf_keras.layers.Add(name=f"{name}_add")([x, shortcut])


def bottleneck_v2(
    x: tf.Tensor, filters: int, stride: int, name: str, norms: Norms, activated: bool = False
) -> tf.Tensor:
    """Applies a pre-activated bottleneck with the stride in its 3 x 3 convolution.

    He et al. 2016, figure 1(b) and section 4; the place of the stride is that of the ImageNet
    networks that the paper's repository points to.

    Args:
        x: `[batch, height, width, channels]`.
        filters: The channels to come out with.
        stride: The step of the second convolution in pixels.
        name: The prefix of all layer names.
        norms: Make the batch normalisations.
        activated: Whether `x` is activated already, as it is for the first block of all (He et al.
            2016, appendix).

    Returns:
        `[batch, ceil(height / stride), ceil(width / stride), filters]`.
    """
    x, shortcut = _activate(x, filters, stride, name, norms, activated)
    inner = filters // _SQUEEZE
    x = convolution(x, inner, 1, f"{name}_conv1")
    x = convolution(norm_relu(x, f"{name}_conv2", norms.inner), inner, 3, f"{name}_conv2", stride)
    x = convolution(norm_relu(x, f"{name}_conv3", norms.inner), filters, 1, f"{name}_conv3")
    return tf_keras.layers.Add(name=f"{name}_add")([x, shortcut])
