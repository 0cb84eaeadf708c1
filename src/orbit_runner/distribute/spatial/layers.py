"""Layers that process each pixel separately, layers that end the partition, and dropout."""

from __future__ import annotations

import itertools
import weakref

import tensorflow as tf
import tf_keras

from orbit_runner.distribute.spatial.grid import Grid
from orbit_runner.distribute.spatial.placement import run_on_device
from orbit_runner.distribute.spatial.rules import (
    Call,
    Layer,
    Rule,
    pointwise,
    register,
    run_unpartitioned,
)
from orbit_runner.distribute.spatial.walk import Functional, run_layers
from orbit_runner.models.normalize import Normalize
from orbit_runner.tf_internals import TFOpLambda

_layers = tf_keras.layers
# Functions that Keras turns into layers if they are called on symbolic tensors.
_OPS = {
    "__operators__.add",
    "cast",
    "math.abs",
    "math.add",
    "math.divide",
    "math.exp",
    "math.maximum",
    "math.minimum",
    "math.multiply",
    "math.sigmoid",
    "math.square",
    "math.subtract",
    "math.tanh",
    "nn.gelu",
    "nn.leaky_relu",
    "nn.relu",
    "nn.relu6",
    "nn.silu",
    "nn.swish",
}


def _axis_refusal(layer: Layer) -> str | None:
    axis = layer.axis
    return None if axis in (-1, 3) else f"is applied along axis {axis}, but the channels are axis 3"


def _op_refusal(layer: Layer) -> str | None:
    # `keras.activations.relu` is the same as `nn.relu` here.
    symbol = layer.symbol or ""
    if symbol in _OPS or symbol.startswith("keras.activations."):
        return None
    return f"is {symbol or layer.name}, which is not known to process each pixel separately"


def _run_global_average(layer: Layer, call: Call, grid: Grid) -> tf.Tensor:
    batches, rows, columns = grid.layout.dims
    pixels = grid.height * grid.width
    # Not in 16 bits, which are too few for the sum.
    dtype = tf.float64 if grid.dtype == tf.float64 else tf.float32
    sums = grid.map_parts(
        lambda device, part: run_on_device(
            device,
            lambda x: [tf.reduce_sum(tf.cast(x, dtype), [1, 2], keepdims=layer.keepdims)],
            part,
        )[0]
    )

    def average_parts(*tensors: tf.Tensor) -> list[tf.Tensor]:
        each = rows * columns
        images = [tf.add_n(tensors[batch * each : (batch + 1) * each]) for batch in range(batches)]
        return [tf.cast(tf.concat(images, axis=0) / pixels, grid.dtype)]

    return run_on_device(grid.layout.first, average_parts, *sums.parts.values())[0]


def _run_dropout(layer: Layer, call: Call, grid: Grid) -> Grid:
    if not call.training or not layer.rate:
        return grid
    # A single random draw, as in the layer itself, so that all later draws of the network are the
    # same as without a partition.
    seed = tf.random.uniform([], 0, 2**31 - 1, tf.int32)
    numbers = itertools.count()

    def drop_part(device: str, part: tf.Tensor) -> tf.Tensor:
        number = next(numbers)

        def run(x: tf.Tensor, key: tf.Tensor) -> list[tf.Tensor]:
            return [tf.nn.experimental.stateless_dropout(x, layer.rate, tf.stack([key, number]))]

        return run_on_device(device, run, part, seed)[0]

    return grid.map_parts(drop_part)


def _noise_shape_refusal(layer: Layer) -> str | None:
    return None if layer.noise_shape is None else "has a noise_shape"


def _run_spatial_dropout(layer: Layer, call: Call, grid: Grid) -> Grid:
    if not call.training or not layer.rate:
        return grid
    # It drops whole channels: all parts use one mask, the same as without a partition.
    sizes = [tf.shape(part)[0] for (_, i, j), part in grid.parts.items() if i == j == 0]
    ones = tf.ones([tf.add_n(sizes), 1, 1, grid.channels], grid.dtype)
    return pointwise(_layers.Multiply(dtype=grid.dtype), call, [grid, call(layer, ones)])


register(
    Normalize,
    _layers.Activation,
    _layers.Add,
    _layers.Average,
    _layers.ELU,
    _layers.LeakyReLU,
    _layers.Maximum,
    _layers.Minimum,
    _layers.Multiply,
    _layers.ReLU,
    _layers.Rescaling,
    _layers.Subtract,
    _layers.ThresholdedReLU,
)(Rule(pointwise))
register(_layers.Concatenate, _layers.Softmax)(Rule(pointwise, _axis_refusal))
register(TFOpLambda)(Rule(pointwise, _op_refusal))
register(_layers.Dropout)(Rule(_run_dropout, _noise_shape_refusal))
register(_layers.SpatialDropout2D)(Rule(_run_spatial_dropout))
register(_layers.GlobalAveragePooling2D)(Rule(_run_global_average, whole=True))
register(_layers.Flatten, _layers.Reshape, _layers.Permute)(Rule(run_unpartitioned, whole=True))


_GARDEN = "official.vision.modeling.layers.nn_blocks"
_inner_models: weakref.WeakKeyDictionary[tf_keras.layers.Layer, dict[bool, Functional]] = (
    weakref.WeakKeyDictionary()
)


def _inner_model(layer: Layer, training: bool) -> Functional:
    # Called on a symbolic tensor, a layer that consists of layers gives the graph of a functional
    # model of them. So its `call` must only call layers and functions.
    models = _inner_models.setdefault(layer, {})
    if training not in models:
        # This may be called while a step is traced, and the model must outlive its graph.
        with tf.init_scope():
            inputs = tf_keras.Input(layer.input_shape[1:], dtype=layer.compute_dtype)
            models[training] = tf_keras.Model(inputs, layer.call(inputs, training=training))
    return models[training]


def _run_block(layer: Layer, call: Call, grid: Grid, **kwargs: object) -> Grid | tf.Tensor:
    return run_layers(_inner_model(layer, call.training), [grid], call)


# For layers with one input that consist of layers with rules.
BLOCK = Rule(_run_block, inner=lambda layer: _inner_model(layer, True))

register(f"{_GARDEN}.ResidualBlock", f"{_GARDEN}.BottleneckBlock")(BLOCK)
