"""The losses, metrics and layers of Keras by name, read from its files without importing it."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from orbit_runner.config.errors import Problem
from orbit_runner.config.signatures import (
    argument_problems,
    declared_parameters,
    reference_problem,
    source_path,
)
from orbit_runner.errors import unknown_name_message

_IMPORT = re.compile(r"^from (tf_keras\.src\.\S+) import (\w+)(?: as (\w+))?$", re.MULTILINE)
# Base classes, which are not metrics or losses themselves.
_BASES = {
    "losses": ("Loss", "Reduction"),
    # As in Keras, `accuracy` selects the one that fits labels and outputs, not this class.
    "metrics": ("Accuracy", "Mean", "MeanMetricWrapper", "MeanTensor", "Metric", "Sum"),
    "layers": ("Layer", "Wrapper", "AbstractRNNCell", "Input", "InputSpec", "InputLayer"),
}
_ACCURACY = ("accuracy", "acc")
# The runner sets these arguments.
_RESERVED = {"losses": ("reduction", "name"), "metrics": ("dtype", "name"), "layers": ()}
_KINDS = {"losses": "loss", "metrics": "metric", "layers": "layer"}
NAME, ALIAS = "name", "as"

Item = str | Mapping[str, Any]  # A loss or metric: its name, or its name with arguments.


@functools.cache
def keras_classes(kind: str) -> Mapping[str, str]:
    """Returns the classes of `losses`, `metrics` or `layers`: name to `module:Class`.

    Losses and metrics have names such as `mean_squared_error`; layers have the names of their
    classes. Returns {} if the source of Keras is not found.
    """
    text = _read_init_file(kind)
    if text is None:
        return {}
    classes = {
        alias or name: f"{module}:{name}"
        for module, name, alias in _IMPORT.findall(text)
        if name[:1].isupper() and (alias or name) not in _BASES[kind]
    }
    if kind == "layers":
        return classes
    return {snake_case(name): reference for name, reference in classes.items()}


@functools.cache
def _short_names(kind: str) -> Mapping[str, str]:
    """Returns the short names of functions, such as `mse`, and what they stand for."""
    return {
        alias.lower(): name
        for _, name, alias in _IMPORT.findall(_read_init_file(kind) or "")
        if alias and name[:1].islower()
    }


def _read_init_file(kind: str) -> str | None:
    try:
        path = source_path(f"tf_keras.{kind}")
    except ImportError:
        return None
    return None if path is None else Path(path).read_text(encoding="utf-8")


def snake_case(name: str) -> str:
    """Returns the name of a class in lowercase with underscores: `AUC` is `auc`."""
    spaced = name.replace("IoU", "Iou").replace("FBeta", "Fbeta")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", spaced).lower()


def find_class(kind: str, name: str) -> str | None:
    """Returns `module:Class` for the name of a loss or metric in any of its forms, or None."""
    known = keras_classes(kind)
    if kind == "layers":
        return known.get(name)
    plain = name if name in known else snake_case(name)
    return known.get(plain) or known.get(_short_names(kind).get(name.lower(), ""))


def split_item(item: str | Mapping[str, object]) -> tuple[str, dict[str, object]]:
    """Returns the name and the arguments of a loss or metric: `mse` or `{name: …, …}`."""
    if isinstance(item, str):
        return item, {}
    arguments = dict(item)
    return str(arguments.pop(NAME, "")), arguments


def item_problems(kind: str, item: str | Mapping[str, object]) -> Iterator[Problem]:
    """Yields what is wrong with a loss or metric, as far as it is known without importing it."""
    name, arguments = split_item(item)
    if not name:
        yield Problem("", "has no name; write {name: …, ARGUMENT: …}", code="not-set")
        return
    if kind == "metrics":
        arguments.pop(ALIAS, None)
    if ":" in name:
        yield from _user_class_problems(
            name, arguments, f"my_package:My{_KINDS[kind].capitalize()}"
        )
        return
    if kind == "metrics" and name in _ACCURACY:
        for argument in arguments:
            message = f"accuracy: {unknown_name_message('argument', argument, ())}"
            yield Problem("", message, code="bad-arguments")
        return
    known = keras_classes(kind)
    reference = find_class(kind, name)
    if reference is None:
        if known:
            message = unknown_name_message(_KINDS[kind], name, _names(kind))
            yield Problem("", message, code="unknown-name")
        return
    yield from _argument_problems(kind, name, reference, arguments)


def layer_problems(layer: str | Mapping[str, Any]) -> Iterator[Problem]:
    """Yields what is wrong with a layer: `Flatten`, or `{Dense: {units: 32}}`."""
    if not isinstance(layer, str) and (
        len(layer) != 1 or not isinstance(next(iter(layer.values())), (Mapping, type(None)))
    ):
        message = "expected a name, or one name with its arguments: {Dense: {units: 32}}"
        yield Problem("", message, code="wrong-type")
        return
    name, arguments = split_layer(layer)
    if find_class("layers", name) is None:
        if keras_classes("layers"):
            message = unknown_name_message("layer", name, _names("layers"))
            yield Problem("", message, code="unknown-name")
        return
    yield from _argument_problems("layers", name, keras_classes("layers")[name], arguments)


def split_layer(
    layer: str | Mapping[str, Mapping[str, object] | None],
) -> tuple[str, dict[str, object]]:
    """Returns the name and the arguments of a layer."""
    if isinstance(layer, str):
        return layer, {}
    ((name, arguments),) = layer.items()
    return str(name), dict(arguments or {})


def _names(kind: str) -> Sequence[str]:
    return [*keras_classes(kind), *(("accuracy",) if kind == "metrics" else ())]


def _argument_problems(
    kind: str, name: str, reference: str, arguments: Mapping[str, object]
) -> Iterator[Problem]:
    for reserved in _RESERVED[kind]:
        if reserved in arguments:
            message = f"{name}: {reserved} cannot be set; remove it"
            yield Problem("", message, code="not-allowed")
            return
    signature = declared_parameters(reference)
    if signature is not None and not isinstance(signature, str):
        settable = (
            parameter for parameter in signature.parameters if parameter.name not in _RESERVED[kind]
        )
        signature = dataclasses.replace(signature, parameters=tuple(settable))
        yield from argument_problems(signature, arguments, name)


def _user_class_problems(
    reference: str, arguments: Mapping[str, object], example: str
) -> Iterator[Problem]:
    if message := reference_problem(reference, example):
        yield Problem("", message, code="import-failed")
        return
    if is_passed_function(reference):
        return
    signature = declared_parameters(reference)
    if isinstance(signature, str):
        yield Problem("", signature, code="import-failed")
    elif signature is not None and not example.endswith("Loss"):
        yield from argument_problems(signature, arguments, reference)


def is_passed_function(reference: str) -> bool:
    """Returns whether a function was passed to `orbit_runner.run` in this process."""
    from orbit_runner.tasks.keras.passed_objects import FUNCTIONS

    return reference in FUNCTIONS


def numbered_items(
    items: Sequence[str | Mapping[str, Any]] | Mapping[int, str | Mapping[str, Any]],
) -> Iterable[tuple[int, str | Mapping[str, Any]]]:
    """Returns metrics with their index in the config; a mapping has some of them by index."""
    return items.items() if isinstance(items, Mapping) else enumerate(items)


def metric_problems(
    metrics: Sequence[str | Mapping[str, object]] | Mapping[int, str | Mapping[str, object]],
    taken: Sequence[str] = (),
) -> Iterator[Problem]:
    """Yields (field, message) for metrics that do not exist or have the name of another one.

    `taken` are the names of the metrics that the task always has.
    """
    names = {"loss", *taken}
    for index, item in numbered_items(metrics):
        for problem in item_problems("metrics", item):
            yield dataclasses.replace(problem, path=f"metrics[{index}]")
        name, arguments = split_item(item)
        shown = str(arguments.get(ALIAS) or name)
        if shown in names:
            yield Problem(
                f"metrics[{index}]",
                f"another metric is also named {shown!r}\nset a name: "
                f"{{name: {name}, {ALIAS}: other_name, …}}",
                code="set-twice",
            )
        names.add(shown)
