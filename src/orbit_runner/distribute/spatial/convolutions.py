"""Convolution, pooling, padding and cropping, with the edges of the neighboring parts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tf_keras

from orbit_runner.distribute.spatial.grid import Grid
from orbit_runner.distribute.spatial.halo import Pads, Window, compute_window, exchange_halo
from orbit_runner.distribute.spatial.placement import run_on_device
from orbit_runner.distribute.spatial.rules import Call, Layer, Rule, register
from orbit_runner.models.resnet_blocks import PadShortcut

_layers = tf_keras.layers


def _pad(x: tf.Tensor, pads: Pads, value: float | np.generic = 0) -> tf.Tensor:
    if pads == ((0, 0), (0, 0)):
        return x
    return tf.pad(x, [(0, 0), *pads, (0, 0)], constant_values=tf.cast(value, x.dtype))


def _refusal(layer: Layer) -> str | None:
    if layer.data_format != "channels_last":
        return "has data_format='channels_first'"
    if getattr(layer, "groups", 1) > 1:
        return "has groups > 1"
    return None


def _build_windows(
    layer: Layer,
    grid: Grid,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> list[Window]:
    lengths = (grid.height, grid.width)
    return [
        compute_window(*numbers, layer.padding)
        for numbers in zip(lengths, kernel, strides, dilations, strict=True)
    ]


def _cast_weights(layer: Layer, kernel: tf.Variable) -> list[tf.Tensor]:
    variables = [kernel, layer.bias] if layer.use_bias else [kernel]
    return [tf.cast(variable, layer.compute_dtype) for variable in variables]


def _activate(layer: Layer, grid: Grid) -> Grid:
    # Separate from the convolution, which would otherwise be run again for this gradient.
    if layer.activation in (None, tf_keras.activations.linear):
        return grid
    return grid.map_parts(
        lambda device, x: run_on_device(device, lambda y: [layer.activation(y)], x)[0]
    )


def _run_convolution(layer: Layer, call: Call, grid: Grid) -> Grid:
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

    windows = _build_windows(layer, grid, layer.kernel_size, layer.strides, layer.dilation_rate)
    return _activate(layer, exchange_halo(grid, windows, run, *_cast_weights(layer, layer.kernel)))


def _run_depthwise(layer: Layer, call: Call, grid: Grid) -> Grid:
    def run(x: tf.Tensor, pads: Pads, kernel: tf.Tensor, *bias: tf.Tensor) -> tf.Tensor:
        x = tf.nn.depthwise_conv2d(
            _pad(tf.cast(x, layer.compute_dtype), pads),
            kernel,
            (1, *layer.strides, 1),
            "VALID",
            dilations=layer.dilation_rate,
        )
        return tf.nn.bias_add(x, bias[0]) if bias else x

    windows = _build_windows(layer, grid, layer.kernel_size, layer.strides, layer.dilation_rate)
    weights = _cast_weights(layer, layer.depthwise_kernel)
    return _activate(layer, exchange_halo(grid, windows, run, *weights))


def _run_max_pooling(layer: Layer, call: Call, grid: Grid) -> Grid:
    def run(x: tf.Tensor, pads: Pads) -> tf.Tensor:
        x = _pad(x, pads, x.dtype.min)
        return tf.nn.max_pool2d(x, layer.pool_size, layer.strides, "VALID")

    windows = _build_windows(layer, grid, layer.pool_size, layer.strides, (1, 1))
    return exchange_halo(grid, windows, run)


def _run_average_pooling(layer: Layer, call: Call, grid: Grid) -> Grid:
    def run(x: tf.Tensor, pads: Pads) -> tf.Tensor:
        # Padding does not count: each mean is over the pixels inside the image.
        inside = [[1.0] * length for length in (x.shape[1], x.shape[2])]
        pooled = tf.nn.avg_pool2d(_pad(x, pads), layer.pool_size, layer.strides, "VALID")
        if pads == ((0, 0), (0, 0)):
            return pooled
        fractions = [
            _valid_fractions(np.pad(ones, pad), size, stride)
            for ones, pad, size, stride in zip(
                inside, pads, layer.pool_size, layer.strides, strict=True
            )
        ]
        return pooled / tf.constant(np.outer(*fractions)[None, :, :, None], pooled.dtype)

    windows = _build_windows(layer, grid, layer.pool_size, layer.strides, (1, 1))
    return exchange_halo(grid, windows, run)


def _valid_fractions(inside: np.ndarray, size: int, stride: int) -> np.ndarray:
    """Returns the fraction of each window that is inside the image, along one dimension."""
    return np.lib.stride_tricks.sliding_window_view(inside, size)[::stride].mean(axis=1)


def _run_padding(layer: Layer, call: Call, grid: Grid) -> Grid:
    windows = [
        Window(1, 1, before, length + before + after)
        for length, (before, after) in zip((grid.height, grid.width), layer.padding, strict=True)
    ]
    return exchange_halo(grid, windows, _pad)


def _run_cropping(layer: Layer, call: Call, grid: Grid) -> Grid:
    windows = [
        Window(1, 1, -before, length - before - after)
        for length, (before, after) in zip((grid.height, grid.width), layer.cropping, strict=True)
    ]
    return exchange_halo(grid, windows, _pad)


def _run_pad_shortcut(layer: Layer, call: Call, grid: Grid) -> Grid:
    lengths = grid.height, grid.width
    windows = [compute_window(length, 1, layer.stride, 1, "same") for length in lengths]
    # Each part starts at a pixel that is kept.
    return exchange_halo(grid, windows, lambda x, pads: call(layer, x))


register(_layers.Conv2D)(Rule(_run_convolution, _refusal))
register(_layers.DepthwiseConv2D)(Rule(_run_depthwise, _refusal))
register(_layers.MaxPooling2D)(Rule(_run_max_pooling, _refusal))
register(_layers.AveragePooling2D)(Rule(_run_average_pooling, _refusal))
register(_layers.ZeroPadding2D)(Rule(_run_padding, _refusal))
register(_layers.Cropping2D)(Rule(_run_cropping, _refusal))
register(PadShortcut)(Rule(_run_pad_shortcut))
