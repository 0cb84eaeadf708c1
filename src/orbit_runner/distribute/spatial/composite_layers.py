"""Layers that consist of layers, such as the residual blocks of Model Garden.

Called on a symbolic tensor, such a layer gives the graph of a functional model of its own layers,
and that model is run. So its `call` must only call layers and functions.
"""

from __future__ import annotations

import weakref
from typing import Any

import tensorflow as tf
import tf_keras

from orbit_runner.distribute.spatial.grid import Grid
from orbit_runner.distribute.spatial.rules import Call, Layer, Rule, register
from orbit_runner.distribute.spatial.walk import Functional, run_layers

_GARDEN = "official.vision.modeling.layers.nn_blocks"
_inner_models: weakref.WeakKeyDictionary[Any, dict[bool, Functional]] = weakref.WeakKeyDictionary()


def _inner_model(layer: Layer, training: bool) -> Functional:
    models = _inner_models.setdefault(layer, {})
    if training not in models:
        # This may be called while a step is traced, and the model must outlive its graph.
        with tf.init_scope():
            inputs = tf_keras.Input(layer.input_shape[1:], dtype=layer.compute_dtype)
            models[training] = tf_keras.Model(inputs, layer.call(inputs, training=training))
    return models[training]


def _run_block(layer: Layer, call: Call, grid: Grid, **kwargs: Any) -> Any:
    return run_layers(_inner_model(layer, call.training), [grid], call)


# For layers with one input that consist of layers with rules.
BLOCK = Rule(_run_block, inner=lambda layer: _inner_model(layer, True))

register(f"{_GARDEN}.ResidualBlock", f"{_GARDEN}.BottleneckBlock")(BLOCK)
