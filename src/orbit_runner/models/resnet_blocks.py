"""Residual blocks for small images: basic with free shortcuts, pre-activation bottleneck."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tf_keras

# Batch normalisation of a tensor under a layer name, with momentum and epsilon already chosen.
Norm = Callable[[tf.Tensor, str], tf.Tensor]


@tf_keras.utils.register_keras_serializable(package="orbit_runner")
class PadShortcut(tf_keras.layers.Layer):
    """Shortcut of kind A: every stride-th pixel, the new channels zero, no parameters.

    He et al. 2015, section 3.3 (A) and section 4.2.
    """

    def __init__(self, filters: int, stride: int, **kwargs: Any) -> None:
        """Takes the shape of the residual branch.

        Args:
            filters: The channels to come out with; the input's channels come first.
            stride: The step between the pixels that are kept, the first included.
            **kwargs: The arguments of every Keras layer.
        """
        super().__init__(**kwargs)
        self.filters = filters
        self.stride = stride

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Subsamples and pads.

        Args:
            inputs: `[batch, height, width, channels]`, at most `filters` channels.

        Returns:
            `[batch, ceil(height / stride), ceil(width / stride), filters]` of the same dtype.
        """
        x = inputs[:, :: self.stride, :: self.stride, :]
        return tf.pad(x, [[0, 0], [0, 0], [0, 0], [0, self.filters - inputs.shape[-1]]])

    def get_config(self) -> dict[str, Any]:
        """Describes the layer so that Keras can make it again.

        Returns:
            The arguments of the constructor.
        """
        return {**super().get_config(), "filters": self.filters, "stride": self.stride}


def convolution(
    x: tf.Tensor, filters: int, kernel_size: int, name: str, stride: int = 1
) -> tf.Tensor:
    """Applies a convolution without bias that halves sizes as the papers' code does.

    The kernel starts from He et al. 2015b ("Delving deep into rectifiers"), section 2.2, forward
    case: a normal distribution of variance 2 / fan_in, cut off at two standard deviations by Keras.

    Args:
        x: `[batch, height, width, channels]`.
        filters: The channels to come out with.
        kernel_size: The width and height of the kernel in pixels, odd.
        name: The name of the layer.
        stride: The step in pixels.

    Returns:
        `[batch, ceil(height / stride), ceil(width / stride), filters]`.
    """
    padding = "same"
    if stride > 1 and kernel_size > 1:
        # TensorFlow's "same" would centre the kernels on odd pixels, the shortcut keeps even ones.
        x = tf_keras.layers.ZeroPadding2D(kernel_size // 2, name=f"{name}_pad")(x)
        padding = "valid"
    return tf_keras.layers.Conv2D(
        filters,
        kernel_size,
        stride,
        padding=padding,
        use_bias=False,
        kernel_initializer="he_normal",
        name=name,
    )(x)


def norm_relu(x: tf.Tensor, name: str, norm: Norm) -> tf.Tensor:
    """Applies batch normalisation, then ReLU.

    Args:
        x: `[batch, height, width, channels]`.
        name: The name of the convolution that the pair belongs to, such as `stage1_block1_conv1`.
        norm: Makes the normalisation.

    Returns:
        The shape of `x`.
    """
    return tf_keras.layers.ReLU(name=f"{name}_relu")(norm(x, f"{name}_bn"))


def basic_block(x: tf.Tensor, filters: int, stride: int, name: str, norm: Norm) -> tf.Tensor:
    """Applies two 3 x 3 convolutions beside a shortcut of kind A.

    He et al. 2015, figure 5 left and section 4.2; ReLU comes after the addition.

    Args:
        x: `[batch, height, width, channels]`, at most `filters` channels.
        filters: The channels to come out with.
        stride: The step of the first convolution in pixels.
        name: The prefix of all layer names.
        norm: Makes each batch normalisation.

    Returns:
        `[batch, ceil(height / stride), ceil(width / stride), filters]`.
    """
    shortcut = x
    if stride != 1 or x.shape[-1] != filters:
        shortcut = PadShortcut(filters, stride, name=f"{name}_shortcut")(x)
    x = norm_relu(convolution(x, filters, 3, f"{name}_conv1", stride), f"{name}_conv1", norm)
    x = norm(convolution(x, filters, 3, f"{name}_conv2"), f"{name}_conv2_bn")
    x = tf_keras.layers.Add(name=f"{name}_add")([x, shortcut])
    return tf_keras.layers.ReLU(name=f"{name}_relu")(x)


def bottleneck_block(x: tf.Tensor, filters: int, stride: int, name: str, norm: Norm) -> tf.Tensor:
    """Applies a pre-activation bottleneck: 1 x 1, 3 x 3, 1 x 1, nothing after the addition.

    He et al. 2016, figure 1(b) and appendix. Where the shape changes, a 1 x 1 projection starts
    behind the first activation, and the stride is that of the first convolution, as in the code
    that the paper points to.

    Args:
        x: `[batch, height, width, channels]`.
        filters: The channels to come out with, four times those inside.
        stride: The step of the first convolution in pixels.
        name: The prefix of all layer names.
        norm: Makes each batch normalisation.

    Returns:
        `[batch, ceil(height / stride), ceil(width / stride), filters]`.
    """
    shortcut = x
    active = norm_relu(x, f"{name}_conv1", norm)
    if stride != 1 or x.shape[-1] != filters:
        shortcut = convolution(active, filters, 1, f"{name}_shortcut", stride)
    inner = filters // 4
    x = convolution(active, inner, 1, f"{name}_conv1", stride)
    x = convolution(norm_relu(x, f"{name}_conv2", norm), inner, 3, f"{name}_conv2")
    x = convolution(norm_relu(x, f"{name}_conv3", norm), filters, 1, f"{name}_conv3")
    return tf_keras.layers.Add(name=f"{name}_add")([x, shortcut])
