"""The layers of a model: output shapes, parameters and floating-point operations."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from orbit_runner.state.learning_rates import replaced_methods_scope
from orbit_runner.step.results import LayerRow
from orbit_runner.tasks.layer_names import group_names
from orbit_runner.tf_internals import (
    all_layers,
    autograph_convert,
    autograph_status,
    inner_layers,
    is_keras_3_layer,
    layer_weights,
)
from orbit_runner.utils.flops import op_flops

if TYPE_CHECKING:
    import tf_keras

    from orbit_runner.utils.types import Tensors


MOST_ROWS = 60  # More rows than this do not fit on two screens.


class LayerCalls:
    """Records the ops and the output shape of each layer, in the first call of a model."""

    def __init__(self, model: tf.Module) -> None:
        self._model = model
        self._owned: dict[int, list[tf.Operation]] = {}
        self._seen: set[tf.Operation] = set()
        self._shapes: dict[int, tuple[int | None, ...]] = {}
        self._examples = 0
        self._is_done = False

    @contextlib.contextmanager
    def recorded_scope(self) -> Iterator[None]:
        """Records in a `with` block, in which the model is traced."""
        layers = _unique_layers(all_layers(self._model))
        with replaced_methods_scope(layers, "call", self._make_recording_call):
            yield

    def shape(self, layer: tf_keras.layers.Layer) -> tuple[int | None, ...] | None:
        """Returns the shape of a layer's output, without the batch; None if it was not called."""
        return self._shapes.get(id(layer))

    def flops(self, layer: tf_keras.layers.Layer) -> float | None:
        """Returns the operations per example of a layer, without those of layers inside it."""
        counts = [op_flops(op) for op in self._owned.get(id(layer), ())]
        if None in counts:
            return None
        return sum(count or 0 for count in counts) / (self._examples or 1)

    def _make_recording_call(self, layer: tf_keras.layers.Layer) -> Callable[..., Tensors]:
        original = layer.call

        @tf.autograph.experimental.do_not_convert
        def call(*args: object, **kwargs: object) -> Tensors:
            # Keras 2 would convert the method itself if it had not been replaced.
            is_converted = not is_keras_3_layer(layer)
            run = autograph_convert(original, autograph_status()) if is_converted else original
            graph = tf.compat.v1.get_default_graph()
            if self._is_done or tf.executing_eagerly():
                return run(*args, **kwargs)
            if layer is self._model:
                self._examples = rows_of((args, kwargs))
            start = len(graph.get_operations())
            outputs = run(*args, **kwargs)
            self.record(layer, graph.get_operations()[start:], outputs)
            return outputs

        return call

    def record(
        self, layer: tf_keras.layers.Layer, ops: Sequence[tf.Operation], outputs: Tensors
    ) -> None:
        """Stores the ops that a call of a layer added to the graph, and the shape of its output."""
        own = [op for op in ops if op not in self._seen]
        self._seen.update(own)  # Layers inside have been recorded already.
        self._owned.setdefault(id(layer), []).extend(own)
        tensors = [tensor for tensor in tf.nest.flatten(outputs) if tf.is_tensor(tensor)]
        if tensors and tensors[0].shape.rank:
            self._shapes.setdefault(id(layer), tuple(tensors[0].shape.as_list()[1:]))
        self._is_done = self._is_done or layer is self._model


def layer_rows(model: tf_keras.Model, calls: LayerCalls, *, every: bool = False) -> list[LayerRow]:
    """Returns the rows of a model, whose parameters add up to those of the model.

    If more rows than fit on two screens have a layer each, layers share a row; see `group_names`.
    With `every`, there is a row for each layer.
    """
    rows = _rows(model, calls)
    if every:
        return rows
    groups: dict[str, list[LayerRow]] = {}
    for row, group in zip(rows, group_names([row.name for row in rows], MOST_ROWS), strict=True):
        groups.setdefault(group, []).append(row)
    return [_join_rows(name, part) for name, part in groups.items()]


def _rows(model: tf_keras.Model, calls: LayerCalls) -> list[LayerRow]:
    counted: set[int] = set()
    rows = []
    for name, layer in _walk(model, model.name, ""):
        inner = inner_layers(layer)
        counted_inside = {id(weight) for below in inner for weight in layer_weights(below)}
        sizes = {
            id(weight): weight.shape.num_elements()
            for weight in layer_weights(layer)
            if id(weight) not in counted | counted_inside
        }
        trained = {id(weight) for weight in layer_weights(layer, trained=True)}
        row = LayerRow(
            name=name,
            kind=type(layer).__name__,
            shape=calls.shape(layer),
            parameters=sum(sizes.values()),
            trainable=sum(size for key, size in sizes.items() if key in trained),
            flops=0 if id(layer) in counted else calls.flops(layer),
        )
        counted |= {id(layer), *sizes}
        # A layer that only calls those inside it has nothing of its own to show.
        if not inner or row.parameters or row.flops:
            rows.append(row)
    return rows


def _walk(
    layer: tf_keras.layers.Layer, name: str, prefix: str
) -> Iterator[tuple[str, tf_keras.layers.Layer]]:
    """Yields each layer with its name, before those inside it. The outermost is no prefix."""
    yield name, layer
    for inner_layer in inner_layers(layer):
        path = f"{prefix}{inner_layer.name}"
        yield from _walk(inner_layer, path, f"{path}/")


def _join_rows(name: str, rows: Sequence[LayerRow]) -> LayerRow:
    flops = [row.flops for row in rows]
    return LayerRow(
        name=name,
        kind=", ".join(dict.fromkeys(row.kind for row in rows)),
        shape=next((row.shape for row in reversed(rows) if row.shape), None),
        parameters=sum(row.parameters for row in rows),
        trainable=sum(row.trainable for row in rows),
        flops=None if None in flops else sum(count or 0 for count in flops),
    )


def _unique_layers(layers: Sequence[tf_keras.layers.Layer]) -> list[tf_keras.layers.Layer]:
    return list({id(layer): layer for layer in layers}.values())


def rows_of(nested: object) -> int:
    """Returns the first size of the first of nested tensors that has any; 0 if it is unknown."""
    tensors = (tensor for tensor in tf.nest.flatten(nested) if tf.is_tensor(tensor))
    sizes = (tensor.shape[0] for tensor in tensors if tensor.shape.rank)
    return int(next(sizes, 0) or 0)
