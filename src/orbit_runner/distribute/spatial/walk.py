"""Runs a functional model layer by layer, on parts.

Keras has no public API for the graph of a functional model. This module uses the same internals as
the model's own `call`, in the same order, because random draws are numbered in that order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf
import tf_keras

from orbit_runner.distribute.spatial.grid import Grid, Layout, gather, scatter
from orbit_runner.distribute.spatial.placement import fan_out
from orbit_runner.distribute.spatial.rules import Call, rule_of

# `Functional` is the class of all models made of inputs and outputs, including subclasses in Model
# Garden.
from orbit_runner.tf_internals import (
    Functional,
    conform_input,
    flat_inputs,
    nested_outputs,
    nodes_by_depth,
    reader_counts,
)

if TYPE_CHECKING:
    from orbit_runner.utils.types import Tensors


def nodes(model: Functional) -> Iterator[Any]:
    """Yields the layer calls of a model, in the order in which Keras makes them."""
    by_depth = nodes_by_depth(model)
    for depth in sorted(by_depth, reverse=True):
        yield from (node for node in by_depth[depth] if not node.is_input)


def run_partitioned(model: Functional, inputs: Tensors, layout: Layout, call: Call) -> Tensors:
    """Returns the outputs, as whole tensors, of a model whose images are split into parts.

    Images are the inputs of shape [batch, height, width, channels].
    """
    tensors = [
        conform_input(model, tensor, reference)
        for tensor, reference in zip(flat_inputs(model, inputs), model.inputs, strict=True)
    ]
    values = [scatter(x, layout) if x.shape.rank == 4 else x for x in tensors]
    outputs = run_layers(model, values, call)
    return tf.nest.map_structure(lambda x: gather(x) if isinstance(x, Grid) else x, outputs)


def run_layers(model: Functional, inputs: list[Grid | tf.Tensor], call: Call) -> Any:
    """Returns the outputs, in parts or whole, of a model some of whose inputs are in parts.

    `inputs` are in the order of the model's own inputs.
    """
    counts = reader_counts(model)
    values = dict[str, list[Any]]()

    def store(name: str, value: Grid | tf.Tensor) -> None:
        values[name] = _fan_out_value(value, counts[name])

    for reference, value in zip(model.inputs, inputs, strict=True):
        store(str(id(reference)), value)
    for node in nodes(model):
        if any(name not in values for name in node.flat_input_ids):
            continue
        args, kwargs = node.map_arguments(values)
        outputs = tf.nest.flatten(_run_layer(node.layer, call, args, kwargs))
        for name, value in zip(node.flat_output_ids, outputs, strict=True):
            store(name, value)
    return tf.nest.pack_sequence_as(
        nested_outputs(model), [values[str(id(x))].pop() for x in model.outputs]
    )


def _run_layer(
    layer: tf_keras.layers.Layer, call: Call, args: Sequence[object], kwargs: dict[str, object]
) -> Any:
    if not any(isinstance(value, Grid) for value in tf.nest.flatten((args, kwargs))):
        return call(layer, *args, **kwargs)
    # A model may set it for one of its layers.
    training = kwargs.pop("training", None)
    if training is not None:
        call = dataclasses.replace(call, training=bool(training))
    if isinstance(layer, Functional):
        return run_layers(layer, flat_inputs(layer, args[0]), call)
    rule = rule_of(layer)
    assert rule is not None, "checked before"
    with tf.name_scope(layer.name):
        return rule.run(layer, call, *args, **kwargs)


def _fan_out_value(value: Grid | tf.Tensor, count: int) -> list[Grid | tf.Tensor]:
    """Returns a value for each reader, such that gradients are added on the parts' devices."""
    if not isinstance(value, Grid) or count < 2:
        return [value] * count
    layout = value.layout
    parts = {
        place: fan_out(layout.device(place), part, count) for place, part in value.parts.items()
    }
    return [
        Grid(layout, value.height, value.width, {place: parts[place][i] for place in parts})
        for i in range(count)
    ]
