"""The loss that labels and outputs require, and checks that labels fit the losses of a model."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orbit_runner.errors import SettingError, nearest_name_hint
from orbit_runner.tasks.keras.examples import Labels
from orbit_runner.tasks.keras.outputs import Output
from orbit_runner.tasks.keras_items import CLASS_NAME, CONFIG, Item
from orbit_runner.tf_internals import function_arguments
from orbit_runner.utils.log import note

_LOSS = "task.loss"
_KINDS = {
    "sparsecategoricalcrossentropy": "sparse",
    "categoricalcrossentropy": "categorical",
    "categoricalfocalcrossentropy": "categorical",
    "binarycrossentropy": "binary",
    "binaryfocalcrossentropy": "binary",
    "bce": "binary",
}


@dataclasses.dataclass(frozen=True)
class LossKind:
    """What the loss of an output is for.

    Attributes:
        name: The name of the loss.
        kind: `sparse`, `categorical`, `binary`, or "" for all other losses.
        from_logits: Whether the output is logits.
        ignored_class: The class number that the loss ignores, which is then no label.
    """

    name: str = ""
    kind: str = ""
    from_logits: bool = False
    ignored_class: int | None = None


def loss_kinds(loss: Any, outputs: Sequence[Output]) -> dict[str, LossKind]:
    """Returns what the losses of `compile` are for, by the name of the output."""
    names = [output.name for output in outputs]
    if isinstance(loss, Mapping):
        losses = [loss.get(name) for name in names]
    elif isinstance(loss, (list, tuple)) and len(loss) == len(names):
        losses = [*loss]
    else:
        losses = [loss] * len(names)
    return {
        name: _kind_of(item, output)
        for name, item, output in zip(names, losses, outputs, strict=True)
    }


def _kind_of(loss: Any, output: Output) -> LossKind:
    if loss is None:
        return LossKind()
    name = loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)
    plain = name.lower().replace("_", "")
    if plain in ("ce", "crossentropy"):
        plain = "binarycrossentropy" if output.width == 1 else "categoricalcrossentropy"
    config = {} if isinstance(loss, str) else _config_of(loss)
    return LossKind(
        name,
        _KINDS.get(plain, ""),
        bool(config.get("from_logits")),
        config.get("ignore_class"),
    )


def _config_of(loss: Any) -> Mapping[str, Any]:
    try:
        return {**loss.get_config(), **function_arguments(loss)}
    except Exception:  # Code of the user.
        return function_arguments(loss)


def default_loss(labels: Mapping[str, Labels], outputs: Sequence[Output]) -> Item:
    """Returns the loss that labels by name and outputs require.

    Raises `SettingError` if they leave a choice.
    """
    if len(outputs) != 1:
        names = ", ".join(output.name for output in outputs)
        raise SettingError(
            _LOSS, f"is not set\nset one loss, or one for each output: {names}", code="not-set"
        )
    (output,) = outputs
    label = next(iter(labels.values()))
    activation = output.activation
    if label.are_integers and (output.width or 0) > 1 and not _range_problem(label, output):
        if activation in ("softmax", "linear") and _are_class_numbers(label, output):
            config = {"from_logits": activation == "linear"}
            return {CLASS_NAME: "SparseCategoricalCrossentropy", CONFIG: config}
    elif activation == "sigmoid" and label.are_integers and label.high == 1:
        return "binary_crossentropy"
    raise SettingError(
        _LOSS,
        f"is not set, and labels {label} with outputs {output} do not determine it\n"
        "set it, for example to mse, binary_crossentropy or sparse_categorical_crossentropy; for "
        "logits, {class_name: SparseCategoricalCrossentropy, config: {from_logits: true}}",
        code="not-set",
    )


def _are_class_numbers(label: Labels, output: Output) -> bool:
    return label.shape in (tuple(output.shape[:-1]), (*output.shape[:-1], 1))


def check_labels(
    kinds: Mapping[str, LossKind],
    labels: Mapping[str, Labels] | None,
    outputs: Sequence[Output],
) -> None:
    """Raises `SettingError` for labels that a loss would take without computing what it is for.

    Such as class numbers that are not below the number of outputs, whose loss is NaN. `labels` are
    by name, "" for a single array; None if the data has none.
    """
    for label, output in _pairs(labels, outputs):
        kind = kinds[output.name]
        problem = ""
        if kind.kind == "sparse":
            problem = _range_problem(label, output, kind.ignored_class)
        elif kind.kind == "binary" and ((label.high or 0) > 1 or (label.low or 0) < 0):
            problem = f"got labels {label}, expected 0 to 1"
        if problem:
            path = f"{_LOSS}.{output.name}" if output.name else _LOSS
            raise SettingError(path, f"{kind.name} does not fit: {problem}", code="model-mismatch")
        if kind.kind and not kind.from_logits and output.activation == "linear":
            note(
                f"warning: task.loss: {kind.name} expects probabilities, but the last layer of the "
                "model has no activation; set from_logits: true, or add a softmax or sigmoid"
            )


def _pairs(
    labels: Mapping[str, Labels] | None, outputs: Sequence[Output]
) -> Iterator[tuple[Labels, Output]]:
    """Yields each output with its labels, if it has some. One array is that of all outputs."""
    if labels is None:
        return
    if [*labels] == [""]:
        yield from ((labels[""], output) for output in outputs)
        return
    names = [output.name for output in outputs]
    in_order = [*labels] == [str(number) for number in range(len(names))]
    if len(labels) == len(names) and (in_order or names == [""]):
        yield from zip(labels.values(), outputs, strict=True)
        return
    for key, label in labels.items():
        if key not in names:
            raise SettingError(
                "task.model",
                f"the data has labels {', '.join(labels)}, but the model has the outputs "
                f"{', '.join(names) or 'x'}{nearest_name_hint(key, names)}\n"
                "give labels by these names, or a list in this order",
                code="model-mismatch",
            )
        yield label, outputs[names.index(key)]


def _range_problem(label: Labels, output: Output, ignored_class: int | None = None) -> str:
    width = output.width
    low, high = label.low, label.high
    if low is not None and low < 0 and low != ignored_class:
        return f"got labels {label}, expected class numbers starting at 0"
    if width is not None and high is not None and high >= width and high != ignored_class:
        return (
            f"got labels {label}, but the model has {width} outputs, for classes 0 to {width - 1}\n"
            f"change the width of the last layer to {high + 1:g}, or the labels"
        )
    return ""
