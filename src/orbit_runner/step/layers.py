"""The layers of a model: output shapes, parameters and floating-point operations."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import tensorflow as tf

from orbit_runner.step.results import LayerRow
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

    from orbit_runner.state.learning_rates import GradsAndVars, Optimizer
    from orbit_runner.utils.types import Tensors


MOST_ROWS = 60  # More rows than this do not fit on two screens.

Owner = TypeVar("Owner")
Gradients = Sequence[tuple[Any, "tf.Variable"]]  # tensors or slices, with their variables


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


@contextlib.contextmanager
def replaced_methods_scope(
    owners: Sequence[Owner], name: str, replacement: Callable[[Owner], Callable[..., object]]
) -> Iterator[None]:
    """Replaces a method of objects in a `with` block by what `replacement` returns for each."""
    # Layers of single ops have a `call` of their own, others that of their class.
    own = {id(owner): vars(owner)[name] for owner in owners if name in vars(owner)}
    for owner in owners:
        # Not by assignment, because Keras tracks what is assigned to a layer.
        vars(owner)[name] = replacement(owner)
    try:
        yield
    finally:
        for owner in owners:
            del vars(owner)[name]
            if id(owner) in own:
                vars(owner)[name] = own[id(owner)]


@contextlib.contextmanager
def seen_gradients_scope(
    optimizer: Optimizer, see: Callable[[Gradients], object]
) -> Iterator[None]:
    """Passes the gradients that an optimizer gets in a `with` block to a function, too."""
    apply = optimizer.apply_gradients

    @tf.autograph.experimental.do_not_convert
    def apply_gradients(grads_and_vars: GradsAndVars, *args: object, **kwargs: object) -> Any:
        pairs = list(grads_and_vars)
        see([pair for pair in pairs if pair[0] is not None])
        return apply(pairs, *args, **kwargs)

    with replaced_methods_scope([optimizer], "apply_gradients", lambda _: apply_gradients):
        yield


def layer_rows(model: tf_keras.Model, calls: LayerCalls, *, every: bool = False) -> list[LayerRow]:
    """Returns the rows of a model, whose parameters add up to those of the model.

    Layers that contain others are replaced by them, as long as the rows fit on two screens. If even
    the outermost layers do not, those without weights and matrix products are shown with the layer
    before them. With `every`, there is a row for each layer.
    """
    parts = [_Part(model, None)]
    while True:
        inner = [inner_part for part in parts for inner_part in part.expand()]
        if len(inner) == len(parts):
            break
        if not every and len(parts) > 1 and len(_merge_rows(_rows(inner, calls))) > MOST_ROWS:
            break
        parts = inner
    rows = _rows(parts, calls)
    return rows if every or len(rows) <= MOST_ROWS else _merge_rows(rows)


@dataclasses.dataclass(frozen=True, eq=False)
class _Part:
    """A layer with all inside it, or without if those have parts of their own."""

    layer: tf_keras.layers.Layer
    inside: str | None  # names of the layers that contain it; None for the outermost
    is_shallow: bool = False

    @property
    def name(self) -> str:
        return f"{self.inside}/{self.layer.name}" if self.inside else self.layer.name

    def expand(self) -> list[_Part]:
        below = [] if self.is_shallow else inner_layers(self.layer)
        if not below:
            return [self]
        # The outermost model would be in all names, so it is left out.
        inside = "" if self.inside is None else self.name
        return [_Part(self.layer, self.inside, True), *(_Part(layer, inside) for layer in below)]

    def layers(self) -> list[tf_keras.layers.Layer]:
        return [self.layer] if self.is_shallow else _unique_layers(all_layers(self.layer))

    def weights(self) -> list[tf.Variable]:
        if not self.is_shallow:
            return layer_weights(self.layer)
        inner = {
            id(weight) for below in inner_layers(self.layer) for weight in layer_weights(below)
        }
        return [weight for weight in layer_weights(self.layer) if id(weight) not in inner]


def _rows(parts: Sequence[_Part], calls: LayerCalls) -> list[LayerRow]:
    counted: set[int] = set()
    rows = []
    for part in parts:
        sizes = {
            id(weight): weight.shape.num_elements()
            for weight in part.weights()
            if id(weight) not in counted
        }
        counted.update(sizes)
        trained = {id(weight) for weight in layer_weights(part.layer, trained=True)}
        own = [layer for layer in part.layers() if id(layer) not in counted]
        counted.update(id(layer) for layer in own)
        flops = [calls.flops(layer) for layer in own]
        row = LayerRow(
            name=part.name,
            kind=type(part.layer).__name__,
            shape=calls.shape(part.layer),
            parameters=sum(sizes.values()),
            trainable=sum(size for key, size in sizes.items() if key in trained),
            flops=None if None in flops else sum(count or 0 for count in flops),
        )
        # A layer that only calls those inside it has nothing of its own to show.
        if not part.is_shallow or row.parameters or row.flops:
            rows.append(row)
    return rows


def _merge_rows(rows: Sequence[LayerRow]) -> list[LayerRow]:
    """Joins each layer without matrix products to the row before it."""
    merged: list[LayerRow] = []
    for row in rows:
        if not merged or row.flops or not merged[-1].flops:
            merged.append(row)
            continue
        last = merged[-1]
        kinds = last.kind.split(", ")
        merged[-1] = dataclasses.replace(
            last,
            kind=last.kind if row.kind in kinds else f"{last.kind}, {row.kind}",
            shape=row.shape or last.shape,
            parameters=last.parameters + row.parameters,
            trainable=last.trainable + row.trainable,
            flops=None if row.flops is None else last.flops,
        )
    return merged


def _unique_layers(layers: Sequence[tf_keras.layers.Layer]) -> list[tf_keras.layers.Layer]:
    return list({id(layer): layer for layer in layers}.values())


def rows_of(nested: object) -> int:
    """Returns the first size of the first of nested tensors that has any; 0 if it is unknown."""
    tensors = (tensor for tensor in tf.nest.flatten(nested) if tf.is_tensor(tensor))
    sizes = (tensor.shape[0] for tensor in tensors if tensor.shape.rank)
    return int(next(sizes, 0) or 0)
