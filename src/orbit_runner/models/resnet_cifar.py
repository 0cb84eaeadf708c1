"""Residual networks for images of CIFAR's size: basic blocks and pre-activation bottlenecks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tf_keras

from orbit_runner.models.catalog import CIFAR_LAYERS
from orbit_runner.models.configs import ResNetCifarConfig
from orbit_runner.models.layers import ImageInput, classifier

_STEM_FILTERS = 16
_STAGE_FILTERS = {1: (16, 32, 64), 2: (64, 128, 256)}
# Applies batch normalization to a tensor, in a layer of the given name.
Norm = Callable[[tf.Tensor, str], tf.Tensor]


@tf_keras.utils.register_keras_serializable(package="orbit_runner")
class PadShortcut(tf_keras.layers.Layer):
    """Type A shortcut: keeps every `stride`-th pixel and pads with zero channels to `filters`.

    It has no parameters (He et al. 2015, section 3.3 (A) and section 4.2).
    """

    def __init__(self, filters: int, stride: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.filters = filters
        self.stride = stride

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Returns [batch, ceil(height / stride), ceil(width / stride), filters] of the same dtype.

        The input is [batch, height, width, channels] with at most `filters` channels.
        """
        x = inputs[:, :: self.stride, :: self.stride, :]
        return tf.pad(x, [[0, 0], [0, 0], [0, 0], [0, self.filters - inputs.shape[-1]]])

    def get_config(self) -> dict[str, object]:
        """Returns the arguments of the constructor."""
        return {**super().get_config(), "filters": self.filters, "stride": self.stride}

    def without_this_package(self) -> tf_keras.layers.Layer:
        """Returns equal layers of tf_keras."""
        layers = tf_keras.layers
        _, _, _, channels = self.input_shape
        # What `channels_first` regards as rows and columns are the columns and channels here.
        padding = ((0, 0), (0, self.filters - channels))
        pad = layers.ZeroPadding2D(padding, data_format="channels_first", name=f"{self.name}_pad")
        return tf_keras.Sequential(
            [layers.MaxPooling2D(1, self.stride, name=f"{self.name}_stride"), pad], name=self.name
        )


def convolution(
    x: tf.Tensor, filters: int, kernel_size: int, name: str, stride: int = 1
) -> tf.Tensor:
    """Returns a convolution without bias, padded as in the papers' code.

    Maps [batch, height, width, channels] to [batch, ceil(height / stride), ceil(width / stride),
    filters]; `kernel_size` must be odd. The kernel is initialized as in He et al. 2015b ("Delving
    deep into rectifiers"), section 2.2, forward case: a normal distribution of variance 2 / fan_in,
    which Keras truncates at two standard deviations.
    """
    padding = "same"
    if stride > 1 and kernel_size > 1:
        # With "same", TensorFlow would center the kernels on odd pixels, but the shortcut keeps the
        # even ones.
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
    """Returns batch normalization of `x` followed by ReLU, in the same shape.

    `name` is the name of the convolution that they belong to, such as `stage1_block1_conv1`.
    """
    return tf_keras.layers.ReLU(name=f"{name}_relu")(norm(x, f"{name}_bn"))


def basic_block(x: tf.Tensor, filters: int, stride: int, name: str, norm: Norm) -> tf.Tensor:
    """Returns two 3 x 3 convolutions with a type A shortcut, and ReLU after the addition.

    He et al. 2015, figure 5 left and section 4.2. Maps [batch, height, width, channels] to [batch,
    ceil(height / stride), ceil(width / stride), filters]; the input has at most `filters` channels.
    The first convolution has the stride. `name` is the prefix of all layer names.
    """
    shortcut = x
    if stride != 1 or x.shape[-1] != filters:
        shortcut = PadShortcut(filters, stride, name=f"{name}_shortcut")(x)
    x = norm_relu(convolution(x, filters, 3, f"{name}_conv1", stride), f"{name}_conv1", norm)
    x = norm(convolution(x, filters, 3, f"{name}_conv2"), f"{name}_conv2_bn")
    x = tf_keras.layers.Add(name=f"{name}_add")([x, shortcut])
    return tf_keras.layers.ReLU(name=f"{name}_relu")(x)


def bottleneck_block(x: tf.Tensor, filters: int, stride: int, name: str, norm: Norm) -> tf.Tensor:
    """Returns a pre-activation bottleneck: 1 x 1, 3 x 3, 1 x 1, and nothing after the addition.

    He et al. 2016, figure 1(b) and appendix. Maps [batch, height, width, channels] to [batch,
    ceil(height / stride), ceil(width / stride), filters]; the convolutions inside have a quarter of
    `filters`. If the shape changes, the shortcut is a 1 x 1 projection of the first activation. The
    first convolution has the stride, as in the code that the paper links to. `name` is the prefix
    of all layer names.
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


def resnet_cifar(config: ResNetCifarConfig, images: ImageInput) -> tf_keras.Model:
    """Returns a residual network of three stages.

    Version 1 is He et al. 2015 ("Deep residual learning"), section 4.2: basic blocks, depth 6n+2,
    shortcuts without parameters. Version 2 is He et al. 2016 ("Identity mappings"), section 4 and
    appendix: pre-activation bottlenecks, depth 9n+2.

    The model maps raw pixels [batch, height, width, channels] to float32 logits [batch,
    num_classes]. The papers use no dropout.
    """
    step = CIFAR_LAYERS[config.version]

    def norm(x: tf.Tensor, name: str) -> tf.Tensor:
        return tf_keras.layers.BatchNormalization(
            momentum=config.batch_norm_momentum,
            epsilon=config.batch_norm_epsilon,
            synchronized=config.use_sync_bn,
            name=name,
        )(x)

    inputs, x = images.normalized()
    x = convolution(x, _STEM_FILTERS, 3, "stem_conv")
    if config.version == 1:
        x = norm_relu(x, "stem_conv", norm)
    block_of_version = basic_block if config.version == 1 else bottleneck_block
    for stage, filters in enumerate(_STAGE_FILTERS[config.version], start=1):
        for block in range(1, (config.depth - 2) // step + 1):
            # Stages 2 and 3 start by halving the size.
            stride = 2 if stage > 1 and block == 1 else 1
            x = block_of_version(x, filters, stride, f"stage{stage}_block{block}", norm)
    if config.version == 2:
        x = norm_relu(x, "final", norm)
    return classifier(
        inputs,
        x,
        num_classes=images.num_classes,
        dropout_rate=config.dropout_rate,
        kernel_initializer="he_normal",
        name=f"resnet{config.depth}_v{config.version}",
        depth=config.depth,
    )
