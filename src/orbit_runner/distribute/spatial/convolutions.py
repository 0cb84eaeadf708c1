"""Convolution, pooling, padding and cropping, with the edges of the neighboring parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from orbit_runner.distribute.spatial.grid import Grid
from orbit_runner.distribute.spatial.halo import Pads, Window, exchange_halo, window
from orbit_runner.distribute.spatial.placement import run_on_device
from orbit_runner.distribute.spatial.rules import Call, Layer, Rule, register
from orbit_runner.models.resnet_blocks import PadShortcut

_layers = tf_keras.layers


def _pad(x: tf.Tensor, pads: Pads, value: Any = 0) -> tf.Tensor:
    if pads == ((0, 0), (0, 0)):
        return x
    return tf.pad(x, [(0, 0), *pads, (0, 0)], constant_values=tf.cast(value, x.dtype))


def _not_convolved(layer: Layer) -> str | None:
    if layer.data_format != "channels_last":
        return "has data_format='channels_first'"
    if getattr(layer, "groups", 1) > 1:
        return "has groups > 1"
    return None


def _windows(layer: Layer, grid: Grid, kernel: Any, strides: Any, dilations: Any) -> list[Window]:
    lengths = (grid.height, grid.width)
    return [
        window(*numbers, layer.padding)
        for numbers in zip(lengths, kernel, strides, dilations, strict=True)
    ]


def _weights(layer: Layer, kernel: tf.Variable) -> list[tf.Tensor]:
    variables = [kernel, layer.bias] if layer.use_bias else [kernel]
    return [tf.cast(variable, layer.compute_dtype) for variable in variables]


def _activate(layer: Layer, grid: Grid) -> Grid:
    # Separate from the convolution, which would otherwise be run again for this gradient.
    if layer.activation in (None, tf_keras.activations.linear):
        return grid
    return grid.map_parts(
        lambda device, x: run_on_device(device, lambda y: [layer.activation(y)], x)[0]
    )


def _convolution(layer: Layer, call: Call, grid: Grid) -> Grid:
    def run(x: tf.Tensor, pads: Pads, kernel: tf.Tensor, *bias: tf.Tensor) -> tf.Tensor:
        # As in the layer, because `conv2d` has no gradient for dilations on a CPU.
        x = tf.nn.convolution(
            _pad(tf.cast(x, layer.compute_dtype), pads),
            kernel,
            layer.strides,
            "VALID",
            dilations=layer.dilation_rate,
        )
        return tf.nn.bias_add(x, bias[0]) if bias else x

    windows = _windows(layer, grid, layer.kernel_size, layer.strides, layer.dilation_rate)
    return _activate(layer, exchange_halo(grid, windows, run, *_weights(layer, layer.kernel)))


def _depthwise(layer: Layer, call: Call, grid: Grid) -> Grid:
    def run(x: tf.Tensor, pads: Pads, kernel: tf.Tensor, *bias: tf.Tensor) -> tf.Tensor:
        x = tf.nn.depthwise_conv2d(
            _pad(tf.cast(x, layer.compute_dtype), pads),
            kernel,
            (1, *layer.strides, 1),
            "VALID",
            dilations=layer.dilation_rate,
        )
        return tf.nn.bias_add(x, bias[0]) if bias else x

    windows = _windows(layer, grid, layer.kernel_size, layer.strides, layer.dilation_rate)
    weights = _weights(layer, layer.depthwise_kernel)
    return _activate(layer, exchange_halo(grid, windows, run, *weights))


def _max_pooling(layer: Layer, call: Call, grid: Grid) -> Grid:
    def run(x: tf.Tensor, pads: Pads) -> tf.Tensor:
        x = _pad(x, pads, x.dtype.min)
        return tf.nn.max_pool2d(x, layer.pool_size, layer.strides, "VALID")

    windows = _windows(layer, grid, layer.pool_size, layer.strides, (1, 1))
    return exchange_halo(grid, windows, run)


def _average_pooling(layer: Layer, call: Call, grid: Grid) -> Grid:
    def run(x: tf.Tensor, pads: Pads) -> tf.Tensor:
        # Padding does not count: each mean is over the pixels inside the image.
        there = [[1.0] * length for length in (x.shape[1], x.shape[2])]
        pooled = tf.nn.avg_pool2d(_pad(x, pads), layer.pool_size, layer.strides, "VALID")
        if pads == ((0, 0), (0, 0)):
            return pooled
        shares = [
            _shares(np.pad(ones, pad), size, stride)
            for ones, pad, size, stride in zip(
                there, pads, layer.pool_size, layer.strides, strict=True
            )
        ]
        return pooled / tf.constant(np.outer(*shares)[None, :, :, None], pooled.dtype)

    windows = _windows(layer, grid, layer.pool_size, layer.strides, (1, 1))
    return exchange_halo(grid, windows, run)


def _shares(there: np.ndarray, size: int, stride: int) -> np.ndarray:
    """Returns the fraction of each window that is inside the image, along one dimension."""
    return np.lib.stride_tricks.sliding_window_view(there, size)[::stride].mean(axis=1)


def _padding(layer: Layer, call: Call, grid: Grid) -> Grid:
    windows = [
        Window(1, 1, before, length + before + after)
        for length, (before, after) in zip((grid.height, grid.width), layer.padding, strict=True)
    ]
    return exchange_halo(grid, windows, _pad)


def _cropping(layer: Layer, call: Call, grid: Grid) -> Grid:
    windows = [
        Window(1, 1, -before, length - before - after)
        for length, (before, after) in zip((grid.height, grid.width), layer.cropping, strict=True)
    ]
    return exchange_halo(grid, windows, _pad)


def _pad_shortcut(layer: Layer, call: Call, grid: Grid) -> Grid:
    lengths = grid.height, grid.width
    windows = [window(length, 1, layer.stride, 1, "same") for length in lengths]
    # Each part starts at a pixel that is kept.
    return exchange_halo(grid, windows, lambda x, pads: call(layer, x))


register(_layers.Conv2D)(Rule(_convolution, _not_convolved))
register(_layers.DepthwiseConv2D)(Rule(_depthwise, _not_convolved))
register(_layers.MaxPooling2D)(Rule(_max_pooling, _not_convolved))
register(_layers.AveragePooling2D)(Rule(_average_pooling, _not_convolved))
register(_layers.ZeroPadding2D)(Rule(_padding, _not_convolved))
register(_layers.Cropping2D)(Rule(_cropping, _not_convolved))
register(PadShortcut)(Rule(_pad_shortcut))
