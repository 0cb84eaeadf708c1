"""Names of the layers and variables of a model, and patterns that select them."""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from orbit_runner.errors import format_list, nearest_name_hint
from orbit_runner.tf_internals import (
    inner_layers,
    is_keras_layer,
    layer_weights,
    own_weights,
)
from orbit_runner.utils.variables import variable_name

if TYPE_CHECKING:
    import tensorflow as tf
    import tf_keras


@dataclasses.dataclass(frozen=True, eq=False)
class NamedLayer:
    """A layer that has weights, or contains layers that do.

    Attributes:
        name: Its name, with those of the layers that contain it: `encoder/dense`.
        layer: The layer.
        weights: Its weights, without those of layers inside it.
    """

    name: str
    layer: tf_keras.layers.Layer
    weights: Sequence[tf.Variable]

    @property
    def trainable_weights(self) -> list[tf.Variable]:
        """The weights that are trained if the layer is trainable, so no moving averages."""
        own = {id(weight) for weight in self.weights}
        weights = own_weights(self.layer, trainable=True)
        return [weight for weight in weights if id(weight) in own]


def named_layers(model: tf.Module) -> list[NamedLayer]:
    """Returns the layers of a Keras model that have weights, each before those inside it.

    A layer that is used in several places has the name of the first one. The outermost model, which
    contains all layers, comes first. Its name is not part of the other names. Empty if the model is
    not a Keras model.
    """
    if not is_keras_layer(model):
        return []
    return [
        NamedLayer(name, layer, _weights_outside_inner_layers(layer))
        for name, layer in _walk(model, model.name, "", set())
        if layer_weights(layer)
    ]


def _weights_outside_inner_layers(layer: tf_keras.layers.Layer) -> list[tf.Variable]:
    inner_weights = {id(w) for inner in inner_layers(layer) for w in layer_weights(inner)}
    return [weight for weight in layer_weights(layer) if id(weight) not in inner_weights]


def _walk(
    layer: tf_keras.layers.Layer, name: str, inside: str, seen: set[int]
) -> Iterator[tuple[str, tf_keras.layers.Layer]]:
    if id(layer) in seen:
        return
    seen.add(id(layer))
    yield name, layer
    for inner_layer in inner_layers(layer):
        path = f"{inside}{inner_layer.name}"
        yield from _walk(inner_layer, path, f"{path}/", seen)


def layers_by_name(model: tf_keras.Model) -> dict[str, tf_keras.layers.Layer]:
    """Returns all layers of a Keras model by name, also those without weights.

    The names are those of `named_layers`. If layers have the same name, `_` is added to the later.
    """
    layers: dict[str, tf_keras.layers.Layer] = {}
    for name, layer in _walk(model, str(model.name), "", set()):
        while name in layers:
            name += "_"
        layers[name] = layer
    return layers


def variable_names(model: tf.Module) -> dict[int, str]:
    """Returns the names of a model's variables by their `id`: `encoder/dense/kernel`.

    The name is that of the layer and the last part of the variable's own name.
    """
    names: dict[int, str] = {}
    for named in named_layers(model):
        for weight in named.weights:
            names.setdefault(id(weight), f"{named.name}/{variable_name(weight).rpartition('/')[2]}")
    return names


# Fewer groups than this say little about a network that has many layers.
_FEW = 8


def group_names(names: Sequence[str], most: int) -> list[str]:
    """Returns the group of each name; there are at most `most` groups.

    The groups are the names, if there are not more. Otherwise, names with a common prefix are one
    group, such as `encoder/layer_3`. If that leaves only a few, consecutive names are one group,
    which is named `first..last`.
    """
    paths = [name.split("/") for name in names]
    longer: list[str] = []
    for depth in range(max(map(len, paths), default=0), 0, -1):
        groups = ["/".join(path[:depth]) for path in paths]
        count = len(set(groups))
        if count <= most:
            if not longer or count >= _FEW:
                return groups
            break
        longer = groups
    unique = list(dict.fromkeys(longer))
    size = max(1, -(-len(unique) // most))
    joined = {}
    for start in range(0, len(unique), size):
        group = unique[start : start + size]
        name = group[0] if len(group) == 1 else f"{group[0]}..{group[-1]}"
        joined.update(dict.fromkeys(group, name))
    return [joined[name] for name in longer]


def selects(pattern: str, name: str) -> bool:
    """Returns whether a pattern matches a name, or that of a layer that contains it.

    `*` matches any characters, including `/`.
    """
    parts = name.split("/")
    outer = ("/".join(parts[:count]) for count in range(1, len(parts) + 1))
    return any(fnmatch.fnmatchcase(prefix, pattern) for prefix in outer)


def no_match_message(kind: str, pattern: str, names: Sequence[str]) -> str:
    """Returns the message for a pattern that matches no name, with the nearest name and all."""
    return (
        f"{pattern!r} matches no {kind}{nearest_name_hint(pattern, names)}\n"
        f"the names of {kind}s:\n{format_list(list(names))}"
    )
