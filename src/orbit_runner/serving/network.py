"""The network of a task as a function from tensors to tensors, as exported files contain it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from orbit_runner.errors import RunnerError
from orbit_runner.tasks.serving import DEFAULT_SIGNATURE, argument_names, named_function

if TYPE_CHECKING:
    import tf_keras

    from orbit_runner.utils.types import Tensors

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
    """

    model: tf_keras.Model
    inputs: dict[str, tf.TensorSpec]
    outputs: tuple[str, ...]
    features: Tensors

    def call(self, *values: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the outputs by name, in float32 if they are of a smaller type."""
        outputs = self.model(tf.nest.pack_sequence_as(self.features, values), training=False)
        return dict(
            zip(self.outputs, map(_widen_to_float32, tf.nest.flatten(outputs)), strict=True)
        )

    def function(self, batch: int | None) -> tf.types.experimental.GenericFunction:
        """Returns a `tf.function` for batches of a size; None for any size."""
        return named_function(
            self.call,
            [
                tf.TensorSpec([batch, *spec.shape[1:]], spec.dtype, name=name)
                for name, spec in self.inputs.items()
            ],
        )

    def describe(self, batch: int | None) -> dict[str, dict[str, str]]:
        """Returns inputs and outputs of the function, in their order."""
        described = describe_function(self.function(batch))
        sides = {"inputs": self.inputs, "outputs": self.outputs}
        return {
            side: {name: described[side][name] for name in names} for side, names in sides.items()
        }

    def save(self, path: Path, batch: int) -> None:
        """Writes a SavedModel with this function as its only signature."""
        root = tf.Module()
        track_values(root, self.model)
        tf.saved_model.save(root, str(path), signatures={DEFAULT_SIGNATURE: self.function(batch)})

    def numpy_function(self) -> NumpyFunction:
        """Returns the function of the model itself."""
        call = self.function(None)

        def run(values: Sequence[np.ndarray]) -> list[np.ndarray]:
            feeds = dict(zip(self.inputs, map(tf.constant, values), strict=True))
            outputs = call(**feeds)
            return [outputs[name].numpy() for name in self.outputs]

        return run


def describe_network(model: tf_keras.Model, features: Tensors, outputs: Tensors) -> Network:
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
                "--format=saved_model supports",
                code="export-failed",
            )
        inputs[name] = tf.TensorSpec([None, *value.shape[1:]], value.dtype, name=name)
    output_names = _names(outputs, getattr(model, "output_names", None) or (), "outputs")
    return Network(model, inputs, tuple(output_names), features)


def describe_function(
    function: tf.types.experimental.GenericFunction,
) -> dict[str, dict[str, str]]:
    """Returns inputs and outputs of a function by name, as text: `uint8 [?, 8, 8, 1]`."""
    traced = function.get_concrete_function()
    inputs = tf.nest.flatten(traced.structured_input_signature)
    outputs = traced.structured_outputs
    return {
        "inputs": {spec.name: describe_spec(spec) for spec in inputs},
        "outputs": {name: describe_spec(spec) for name, spec in outputs.items()},
    }


def describe_spec(spec: tf.TensorSpec) -> str:
    """Returns the type and the shape of a tensor as text: `uint8 [?, 8, 8, 1]`."""
    if spec.shape.rank is None:
        return f"{spec.dtype.name} of any shape"
    sizes = ", ".join("?" if size is None else str(size) for size in spec.shape)
    return f"{spec.dtype.name} [{sizes}]"


def track_values(root: tf.Module, model: tf_keras.Model) -> None:
    """Attaches the variables and lookup tables of a model to `root`, so that a SavedModel has them.

    Not the model itself: TensorFlow would trace each of its layers separately, and save metadata
    that only Keras can read.
    """
    parts = list(tf.train.TrackableView(model).descendants())
    keras_3_model = getattr(model, "keras_3_model", None)
    if keras_3_model is not None:
        # Its interface of Keras 2 has neither tables nor the states of random generators.
        parts += tf.train.TrackableView(keras_3_model).descendants()
        parts += [variable.value for variable in keras_3_model.variables]
    root.weights = [part for part in parts if isinstance(part, tf.Variable)]
    table = tf.saved_model.experimental.TrackableResource
    root.tables = [part for part in parts if isinstance(part, table)]


def _names(structure: Tensors, declared: Sequence[str], usual: str) -> list[str]:
    """Returns an identifier for each tensor: its path in the structure, or the name of a layer."""
    paths = _paths(structure)
    if paths == [""]:
        paths = [*declared] if len(declared) == 1 else [usual]
    elif isinstance(structure, (list, tuple)) and len({*declared}) == len(structure) == len(paths):
        paths = [*declared]
    return argument_names(paths, usual)


def _paths(structure: Tensors, above: tuple[str, ...] = ()) -> list[str]:
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
