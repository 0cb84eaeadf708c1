"""What a model returns: the shapes, names and activations of its outputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import tensorflow as tf
import tf_keras

from orbit_runner.errors import SettingError, cut_at_word, first_line
from orbit_runner.tf_internals import is_functional, keras_mask, output_layers

if TYPE_CHECKING:
    from orbit_runner.utils.types import Tensors

_MODEL = "task.model"


@dataclasses.dataclass(frozen=True)
class Output:
    """An output of a model.

    Attributes:
        name: Its name; "" if the model returns a single tensor.
        shape: The shape for one example; None for sizes that differ between batches.
        dtype: The name of its type.
        activation: The name of the activation of the last layer; "" if it is unknown.
        mask_rank: The number of axes of its mask, such as 2 for steps of sequences; 0 without one.
    """

    name: str
    shape: tuple[int | None, ...]
    dtype: str
    activation: str = ""
    mask_rank: int = 0

    @property
    def width(self) -> int | None:
        """The size of the last axis, such as the number of classes; 1 if there is none."""
        return self.shape[-1] if self.shape else 1

    @property
    def spec(self) -> tf.TensorSpec:
        """The shape and type of a batch."""
        return tf.TensorSpec([None, *self.shape], self.dtype)

    def __str__(self) -> str:
        return f"{self.dtype} {['batch', *self.shape]}".replace("'", "")


def outputs_of(
    model: Any, inputs: Tensors, call: Callable[[Tensors], Any]
) -> tuple[Any, list[Output]]:
    """Returns what a model of Keras 2 or Keras 3 returns for inputs such as `symbolic_inputs`.

    `call` calls the model with them, and creates its variables if it has none yet. Returns the
    structure, with an `Output` for each tensor, and the outputs in the order of `tf.nest.flatten`.
    Raises `SettingError` if the model does not accept the inputs or returns anything else.
    """
    try:
        returned = call(inputs)
    except Exception as error:  # The code of the model may raise any error.
        raise call_error(inputs, error) from error
    tensors = tf.nest.flatten(returned)
    for tensor in tensors:
        _require_tensor(tensor)
    if not isinstance(returned, (dict, list, tuple)):
        names = [""]
        activations = [_last_activation(model)]
    else:
        names = _output_names(model, returned, len(tensors))
        activations = _activations(model, len(tensors))
    outputs = [
        Output(
            name,
            tuple(tensor.shape[1:]),
            tf.as_dtype(tensor.dtype).name,
            activation,
            _mask_rank(tensor),
        )
        for name, tensor, activation in zip(names, tensors, activations, strict=True)
    ]
    return tf.nest.pack_sequence_as(returned, outputs), outputs


def _mask_rank(output: Any) -> int:
    mask = keras_mask(output)
    return 0 if mask is None else len(mask.shape)


def _require_tensor(output: object) -> None:
    rank = getattr(getattr(output, "shape", None), "rank", None)
    if rank is None:
        rank = len(getattr(output, "shape", ()))
    if not hasattr(output, "dtype") or rank == 0:
        kind = "a scalar" if hasattr(output, "dtype") else f"a {type(output).__name__}"
        raise SettingError(
            _MODEL,
            f"got a model that returns {kind}, expected a tensor with a row for each example, or a "
            "list or a dict of tensors",
            code="wrong-type",
        )


def _output_names(model: Any, returned: Any, count: int) -> list[str]:
    """Returns the names of outputs, in the order of `tf.nest.flatten`."""
    if isinstance(returned, Mapping) and len(returned) == count:
        return sorted(map(str, returned))
    own = [*(getattr(model, "output_names", None) or ())] if is_functional(model) else []
    return own if len(own) == count else [f"output_{number}" for number in range(1, count + 1)]


def call_error(inputs: Tensors, error: Exception) -> SettingError:
    """Returns the error for a model that fails when it is called with `symbolic_inputs`."""
    shapes = tf.nest.map_structure(
        lambda tensor: f"{tf.as_dtype(tensor.dtype).name} {tensor.shape}", inputs
    )
    return SettingError(
        _MODEL,
        f"the model does not accept the inputs of the data, {shapes}: {reason_of(error)}\n"
        "change its input, or the arrays",
        code="model-mismatch",
    )


def symbolic_inputs(specs: Mapping[str, tuple[tuple[int, ...], str]]) -> Tensors:
    """Returns Keras inputs for `{"x": (shape, dtype)}`, or for several by name or in a list."""
    inputs = {
        path.partition(".")[2]: tf_keras.Input(shape, dtype=dtype, name=path.replace(".", "_"))
        for path, (shape, dtype) in specs.items()
        if path.partition(".")[0] == "x"
    }
    return inputs[""] if list(inputs) == [""] else as_passed(inputs)


def as_passed(tree: Any) -> Any:
    """Returns inputs or labels as they were passed: a list if their names are `0`, `1` etc."""
    if not isinstance(tree, Mapping):
        return tree
    numbers = [str(number) for number in range(len(tree))]
    return [tree[number] for number in numbers] if {*tree} == {*numbers} else dict(tree)


def _activations(model: Any, count: int) -> list[str]:
    layers = output_layers(model) if is_functional(model) else []
    if len(layers) != count:
        return [""] * count
    return [
        _activation(layer) if len(getattr(layer, "outputs", None) or [layer]) == 1 else ""
        for layer in layers
    ]


def _last_activation(model: Any) -> str:
    """Returns the name of the activation of the last layer; "" if it is unknown."""
    try:
        layer = model.layers[-1]
    except (AttributeError, IndexError, ValueError):
        return ""
    return _activation(layer) if hasattr(layer, "layers") or is_functional(model) else ""


def _activation(layer: Any) -> str:
    if hasattr(layer, "layers"):
        return _last_activation(layer)
    if type(layer).__name__ == "Softmax":
        return "softmax"
    return getattr(getattr(layer, "activation", None), "__name__", "")


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
