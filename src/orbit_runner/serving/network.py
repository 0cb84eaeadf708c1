"""The network of a task as a function from tensors to tensors, as exported files contain it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from orbit_runner.distribute.sharded_variables import is_variable
from orbit_runner.errors import RunnerError
from orbit_runner.tasks.serving import DEFAULT_SIGNATURE, named_function

# From the inputs to the outputs, each a list of arrays [batch, ...] in the order of their names.
NumpyFunction = Callable[[Sequence[np.ndarray]], list[np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Network:
    """A model with the names, shapes and types of its inputs and outputs.

    Attributes:
        model: The model.
        inputs: The inputs by name, in the order of `tf.nest.flatten`; the first size is None.
        outputs: The names of the outputs, in the order of `tf.nest.flatten`.
        features: The features of a batch, whose structure the model takes.
        structure: What the model returns, with the name of an output in place of each tensor.
    """

    model: Any
    inputs: dict[str, tf.TensorSpec]
    outputs: tuple[str, ...]
    features: Any
    structure: Any

    def call(self, *values: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the outputs by name, in float32 if they are of a smaller type."""
        found = self.model(tf.nest.pack_sequence_as(self.features, values), training=False)
        return dict(zip(self.outputs, map(_widen_to_float32, tf.nest.flatten(found)), strict=True))

    def function(self, batch: int | None) -> Any:
        """Returns a `tf.function` for batches of a size; None for any size."""
        return named_function(
            self.call,
            [
                tf.TensorSpec([batch, *spec.shape[1:]], spec.dtype, name=name)
                for name, spec in self.inputs.items()
            ],
        )

    def save(self, path: Path, batch: int) -> None:
        """Writes a SavedModel with this function as its only signature."""
        root = tf.Module()
        track_values(root, self.model)
        tf.saved_model.save(root, str(path), signatures={DEFAULT_SIGNATURE: self.function(batch)})

    def numpy_function(self) -> NumpyFunction:
        """Returns the function of the model itself."""
        call = self.function(None)

        def run(values: Sequence[np.ndarray]) -> list[np.ndarray]:
            given = dict(zip(self.inputs, map(tf.constant, values), strict=True))
            found = call(**given)
            return [found[name].numpy() for name in self.outputs]

        return run

    @property
    def nbytes(self) -> int:
        """The size of all variables in bytes."""
        variables = {id(one): one for one in self.model.variables if is_variable(one)}.values()
        return sum(one.shape.num_elements() * one.dtype.size for one in variables)


def describe_network(model: Any, features: Any, outputs: Any) -> Network:
    """Returns the network, for the features of a batch and the outputs of the model for them.

    Raises `RunnerError` if an input is not a tensor.
    """
    flat = tf.nest.flatten(features)
    # A model of a subclass has None, not names.
    names = _names(features, getattr(model, "input_names", None) or (), "inputs")
    inputs = {}
    for name, value in zip(names, flat, strict=True):
        if not isinstance(value, tf.Tensor):
            raise RunnerError(
                f"the input {name!r} of the network is of type {type(value).__name__}, which only "
                "--format=saved_model supports"
            )
        inputs[name] = tf.TensorSpec([None, *value.shape[1:]], value.dtype, name=name)
    output_names = _names(outputs, getattr(model, "output_names", None) or (), "outputs")
    structure = tf.nest.pack_sequence_as(outputs, output_names)
    return Network(model, inputs, tuple(output_names), features, structure)


def track_values(root: tf.Module, model: Any) -> None:
    """Attaches the variables and lookup tables of a model to `root`, so that a SavedModel has them.

    Not the model itself: TensorFlow would trace each of its layers separately, and save metadata
    that only Keras can read.
    """
    parts = tf.train.TrackableView(model).descendants()
    root.weights = [part for part in parts if is_variable(part)]
    table = tf.saved_model.experimental.TrackableResource
    root.tables = [part for part in parts if isinstance(part, table)]


def _names(structure: Any, declared: Sequence[str], usual: str) -> list[str]:
    """Returns an identifier for each tensor: its path in the structure, or the name of a layer."""
    paths = _paths(structure)
    if paths == [""]:
        paths = [*declared] if len(declared) == 1 else [usual]
    names = ["".join(c if c.isascii() and c.isalnum() else "_" for c in path) for path in paths]
    return [name if name.isidentifier() else f"{usual}_{name}" for name in names]


def _paths(structure: Any, above: tuple[str, ...] = ()) -> list[str]:
    """Returns the path of each tensor, in the order of `tf.nest.flatten`."""
    if isinstance(structure, Mapping):
        items = [(str(name), structure[name]) for name in sorted(structure)]
    elif isinstance(structure, (list, tuple)):
        items = [(str(index), value) for index, value in enumerate(structure)]
    else:
        return ["_".join(above)]
    return [path for name, value in items for path in _paths(value, (*above, name))]


def _widen_to_float32(value: tf.Tensor) -> tf.Tensor:
    is_small = value.dtype.is_floating and value.dtype.size < 4
    return tf.cast(value, tf.float32) if is_small else value
