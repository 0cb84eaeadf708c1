"""What a model returns, as far as loss and metrics need it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import tensorflow as tf
import tf_keras

from orbit_runner.errors import SettingError, cut_at_word, first_line
from orbit_runner.tf_internals import is_functional, keras_mask, output_layers

if TYPE_CHECKING:
    from orbit_runner.utils.types import Tensors

# What a loss or metric raises if labels or outputs do not fit.
CALL_ERRORS = (TypeError, ValueError, tf.errors.InvalidArgumentError)
_MODEL = "task.model"
OWN_METRICS = (
    "metrics that the model updates itself are not supported on several replicas\nremove them, or "
    "train on one replica; those of task.metrics are computed over all replicas"
)


@dataclasses.dataclass(frozen=True)
class Outputs:
    """The output of a model.

    Attributes:
        shape: The shape for one example; None for sizes that differ between batches.
        dtype: The name of its type.
        activation: The name of the activation of the last layer; "" if it is unknown.
        masked: Whether it has a mask, which excludes examples or parts of them.
    """

    shape: tuple[int | None, ...]
    dtype: str
    activation: str = ""
    masked: bool = False

    @property
    def width(self) -> int | None:
        """The size of the last axis, such as the number of classes; 1 if there is none."""
        return self.shape[-1] if self.shape else 1

    def __str__(self) -> str:
        return f"{self.dtype} {['batch', *self.shape]}".replace("'", "")


def outputs_of(
    model: tf_keras.Model, inputs: Tensors, names: Sequence[str] = ()
) -> Outputs | dict[str, Outputs]:
    """Returns the description of a model's output for inputs such as `symbolic_inputs` returns.

    Of a model that returns a list or a dict of tensors, it returns those of all outputs by name.
    `names` are the names of the outputs of a model that does not name them itself, in order.

    Creates the variables of the model if it has none yet. Raises `SettingError` if the model does
    not accept the inputs or returns anything else.
    """
    try:
        output = model(inputs, training=False)
    except Exception as error:  # The code of the model may raise any error.
        raise call_error(inputs, error) from error
    _require_no_strings_as_numbers(model, inputs)
    if not isinstance(output, (dict, list, tuple)):
        return _describe_output(output, last_activation(model), "")
    by_name = outputs_by_name(output, _output_names(model, output, names))
    layers = output_layers(model) if is_functional(model) else []
    # Keras has the layers in the order of `tf.nest.flatten`, which sorts the keys of a dict.
    order = sorted(by_name) if isinstance(output, dict) else list(by_name)
    activations = {
        name: _activation(layer)
        for name, layer in zip(order, layers, strict=False)
        if len(getattr(layer, "outputs", None) or [layer]) == 1
    }
    return {
        name: _describe_output(tensor, activations.get(name, ""), f"the output {name!r} is ")
        for name, tensor in by_name.items()
    }


def _describe_output(output: Tensors, activation: str, where: str) -> Outputs:
    is_nested = isinstance(output, (dict, list, tuple, type(None)))
    if is_nested or not tf_keras.backend.is_keras_tensor(output):
        kind = type(output).__name__
        raise SettingError(
            _MODEL,
            f"{where or 'got a model that returns '}a {kind}, expected a tensor, or a list or a "
            "dict of tensors",
            code="wrong-type",
        )
    if output.shape.rank == 0:
        returns = where or "got a model that returns "
        raise SettingError(
            _MODEL, f"{returns}a scalar, expected one per example", code="wrong-type"
        )
    masked = keras_mask(output) is not None
    return Outputs(tuple(output.shape[1:]), output.dtype.name, activation, masked)


def outputs_by_name(outputs: Tensors, names: Sequence[str]) -> dict[str, tf.Tensor]:
    """Returns what a model with several outputs has returned, by the names of the outputs."""
    if isinstance(outputs, dict):
        return {name: outputs[name] for name in names}
    return dict(zip(names, outputs, strict=True))


def _output_names(model: tf_keras.Model, output: Tensors, names: Sequence[str]) -> list[str]:
    if isinstance(output, dict):
        return [*output]
    own = list(getattr(model, "output_names", None) or ()) if is_functional(model) else []
    if len(own) == len(output):
        return _unique_names(own)
    if len(names) == len(output):
        return list(names)
    return [f"output_{number}" for number in range(1, len(output) + 1)]  # As in Keras.


def _unique_names(names: Sequence[str]) -> list[str]:
    unique: list[str] = []
    for name in names:
        number = 1
        proposal = name
        while proposal in unique:
            proposal = f"{name}_{number}"
            number += 1
        unique.append(proposal)
    return unique


def call_error(inputs: Tensors, error: Exception) -> SettingError:
    """Returns the error for a model that fails when it is called with `symbolic_inputs`."""
    if "SyncOnReadVariable" in str(error):  # It has one value for each replica.
        return SettingError(_MODEL, f"{reason_of(error)}\n{OWN_METRICS}", code="not-supported")
    shapes = tf.nest.map_structure(lambda tensor: f"{tensor.dtype.name} {tensor.shape}", inputs)
    return SettingError(
        _MODEL,
        f"the model does not accept the inputs of the data, {shapes}: {reason_of(error)}\n"
        "change its input, or the arrays",
        code="model-mismatch",
    )


def _require_no_strings_as_numbers(model: tf_keras.Model, inputs: Tensors) -> None:
    """Raises `SettingError` if a model casts strings, which fails only when it is run."""
    specs = tf.nest.map_structure(lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype), inputs)
    if all(spec.dtype != tf.string for spec in tf.nest.flatten(specs)):
        return
    traced = tf.function(lambda features: model(features, training=False))
    graph = traced.get_concrete_function(specs).graph
    for op in graph.get_operations():
        if op.type == "Cast" and op.get_attr("SrcT") == tf.string:
            raise SettingError(
                _MODEL,
                "the model uses strings of the data as numbers\nconvert them in the function that "
                "returns the arrays, or in the model, for example with TextVectorization, "
                "StringLookup or tf.strings.to_number",
                code="model-mismatch",
            )


def symbolic_inputs(specs: Mapping[str, tuple[tuple[int, ...], str]]) -> Tensors:
    """Returns Keras inputs for `{"x": (shape, dtype)}` or for several by name."""
    inputs = {
        path.partition(".")[2]: tf_keras.Input(shape, dtype=dtype, name=path.replace(".", "_"))
        for path, (shape, dtype) in specs.items()
        if path.partition(".")[0] == "x"
    }
    return inputs[""] if list(inputs) == [""] else inputs


def last_activation(model: tf_keras.Model) -> str:
    """Returns the name of the activation of the last layer; "" if it is unknown."""
    try:
        layer = model.layers[-1]
    except (AttributeError, IndexError, ValueError):
        return ""
    return _activation(layer) if hasattr(layer, "layers") or is_functional(model) else ""


def _activation(layer: tf_keras.layers.Layer) -> str:
    if hasattr(layer, "layers"):
        return last_activation(layer)
    if type(layer).__name__ == "Softmax":
        return "softmax"
    return getattr(getattr(layer, "activation", None), "__name__", "")


def match_labels(labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
    """Returns labels as Keras passes them to losses and metrics.

    Labels [batch] become [batch, 1] if outputs are [batch, width]. Their type becomes that of the
    outputs if both are floating-point numbers, or both are integers.
    """
    if labels.shape.rank == 1 and outputs.shape.rank == 2:
        labels = tf.expand_dims(labels, -1)
    kinds = labels.dtype, outputs.dtype
    if all(kind.is_floating for kind in kinds) or all(kind.is_integer for kind in kinds):
        labels = tf.cast(labels, outputs.dtype)
    return labels


def reason_of(error: Exception) -> str:
    """Returns why a model, loss or metric does not accept what it gets, in one or two lines."""
    # Keras begins with the layer, and adds its arguments at the end.
    text = str(error).partition("Call arguments received by")[0]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("Exception encountered")]
    if lines and lines[0] == "in user code:":  # AutoGraph adds the lines of the code.
        places = [line.rstrip(" *") for line in lines if line.startswith("File ")]
        return "\n".join([cut_at_word(lines[-1]), *places[-1:]])
    return cut_at_word(lines[0]) if lines else first_line(error)
