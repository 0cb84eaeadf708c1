"""The settings of optimizers, losses and metrics that a Python program passes as objects.

Objects of Keras' own classes become the settings of the same meaning, by their Keras config, so
that `config.yaml` reproduces the run. Does not import Keras, which made the objects.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from orbit_runner.config.schema.base import OneOf
from orbit_runner.config.schema.optimizers import Optimization, OptimizerChoice
from orbit_runner.config.schema.schedules import LearningRate
from orbit_runner.config.signatures import Signature, declared_parameters
from orbit_runner.errors import RunnerError
from orbit_runner.tasks.keras.keras_names import ALIAS, NAME, find_class, snake_case, split_item
from orbit_runner.tasks.keras.passed_objects import register_function, register_object
from orbit_runner.tf_internals import function_arguments
from orbit_runner.utils.files import to_jsonable

_SECTION = "trainer.optimizer_config"
# Values of an optimizer that are no settings: `jit_compile` depends on the machine.
_NOT_SETTINGS = ("name", "learning_rate", "is_legacy_optimizer", "jit_compile")
# Those of Keras 3, and the class of Keras 2 that computes the same.
_KERAS_3_OPTIMIZERS = {
    **{name: name for name in ("SGD", "Adam", "AdamW", "Adafactor")},
    "Adagrad": "legacy.Adagrad",
}
_HINTS = {
    "use_ema": f"for a moving average of the weights, set {_SECTION}.ema in overrides",
    "weight_decay": "for weight decay, use tf_keras.optimizers.AdamW",
    "decay": "pass a schedule of tf_keras.optimizers.schedules as its learning rate",
    **dict.fromkeys(
        ("warmup_target", "warmup_steps"), f"for a warmup, set {_SECTION}.warmup in overrides"
    ),
}
# Values of the Keras config of a loss or metric that are no arguments of the item.
_NOT_ARGUMENTS = ("name", "dtype", "reduction", "fn")

Item = str | dict[str, Any]  # a loss or metric in a config


def optimizer_setting(optimizer: Any) -> dict[str, Any]:
    """Returns the section `trainer.optimizer_config` of an optimizer of Keras.

    Raises `RunnerError` if no setting has the same meaning.
    """
    cls = type(optimizer)
    package, _, path = cls.__module__.partition(".")
    prefix = "legacy." if ".legacy." in f".{path}" else ""
    names = _names_by_class(OptimizerChoice)
    same = f"{prefix}{cls.__name__}" if package == "tf_keras" else ""
    if package == "keras":
        same = _KERAS_3_OPTIMIZERS.get(cls.__name__, "")
    kind = names.get(same)
    if kind is None:
        allowed = (
            f"legacy.{cls.__name__}" if f"legacy.{cls.__name__}" in names else ", ".join(names)
        )
        raise RunnerError(
            f"got {cls.__module__}.{cls.__name__}, which no setting describes\n"
            f"use one of tf_keras.optimizers: {allowed}; or a name, or the section {_SECTION}",
            path="optimizer",
            code="not-supported",
        )
    values = _config(optimizer)
    plain = _config(cls())
    section = getattr(OptimizerChoice(), kind).as_dict()
    changes: dict[str, Any] = {}
    for name, value in values.items():
        if name in _NOT_SETTINGS:
            continue
        if name not in section:
            if value != plain.get(name):
                raise _unsupported(cls.__name__, name, value)
        elif value != section[name]:
            if value is None:
                raise RunnerError(
                    f"{cls.__name__} has no {name}, which {_SECTION}.optimizer.{kind} "
                    f"requires\npass it, such as {package}.optimizers.{cls.__name__}({name}="
                    f"{section[name]!r})",
                    path="optimizer",
                    code="not-supported",
                )
            changes[name] = value
    return {
        "optimizer": {"type": kind, **({kind: changes} if changes else {})},
        "learning_rate": _learning_rate(values["learning_rate"]),
    }


def is_same_optimizer(setting: Mapping[str, Any], config: Optimization) -> bool:
    """Returns whether a config has the optimizer and the learning rate that a section describes.

    `setting` is what `optimizer_setting` returns. The legacy class of an optimizer counts as the
    same. A warmup and a moving average count as additions, which `compile` cannot describe.
    """
    return all(
        _is_same_choice(setting[name], getattr(config, name))
        for name in ("optimizer", "learning_rate")
    )


def _is_same_choice(setting: Mapping[str, Any], choice: OneOf) -> bool:
    kind = setting["type"]
    block = choice.get()
    if block is None:
        return False
    described = getattr(type(choice)(), kind)
    classes = {type(item).keras_class.removeprefix("legacy.") for item in (described, block)}
    if kind != choice.type and (len(classes) > 1 or "" in classes):
        return False
    # A value that only one of two classes has, such as `decay`, must be the default.
    defaults = {**described.as_dict(), **type(block)().as_dict()}
    values = {**defaults, **setting.get(kind, {})}
    own_values = {**defaults, **block.as_dict()}
    ignored = _NOT_SETTINGS if isinstance(choice, OptimizerChoice) else ("name",)
    return all(
        _as_float32(values[name]) == _as_float32(own_values[name])
        for name in defaults
        if name not in ignored
    )


def _as_float32(value: object) -> object:
    """Returns a value with the precision that Keras 3 keeps of numbers."""
    if isinstance(value, (list, tuple)):
        return [_as_float32(item) for item in value]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(np.float32(value))
    return value


def _config(item: Any) -> dict[str, Any]:
    """Returns the Keras config of an object as JSON values."""
    values = {
        name: [*np.asarray(value)] if hasattr(value, "__array__") and np.ndim(value) else value
        for name, value in item.get_config().items()
    }
    config: dict[str, Any] = to_jsonable(values)
    return config


def _names_by_class(choice: type[OneOf]) -> dict[str, str]:
    """Returns the types of a choice by the class of Keras that they are."""
    default = choice()
    classes = {name: type(getattr(default, name)).keras_class for name in choice.choices()}
    return {cls: name for name, cls in classes.items() if cls}


def _learning_rate(value: float | Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {"type": "constant", "constant": {"learning_rate": value}}
    name = str(value.get("class_name"))
    names = _names_by_class(LearningRate)
    kind = names.get(name)
    if kind is None or value.get("registered_name"):
        raise RunnerError(
            f"no setting describes the learning rate {name}\n"
            f"allowed: a number, {', '.join(names)}; or {_SECTION}.learning_rate in overrides",
            path="optimizer",
            code="not-supported",
        )
    section = getattr(LearningRate(), kind).as_dict()
    changes = {}
    for key, item in value["config"].items():
        if key in section and key != "name":
            changes[key] = item
        elif key != "name" and item:
            raise _unsupported(name, key, item)
    return {"type": kind, kind: changes}


def _unsupported(what: str, name: str, value: object) -> RunnerError:
    hint = f"\n{_HINTS[name]}" if name in _HINTS else ""
    return RunnerError(
        f"{what} has {name}={value!r}, which no setting describes{hint}",
        path="optimizer",
        code="not-supported",
    )


def loss_setting(loss: Any) -> Item:
    """Returns the setting `task.loss` of an object; of an object itself if no other is possible."""
    cls = type(loss)
    config = _config(loss)
    if config.get("reduction") == "sum":
        raise RunnerError(
            f"{cls.__name__} adds the losses of a batch (reduction: sum), so that the loss "
            "depends on the batch size; only means are supported",
            path="loss",
            code="not-supported",
        )
    item = _keras_item("losses", loss, config)
    if item is not None:
        return item
    _check_module(cls, "loss")
    arguments = _arguments(config)
    if _constructor_problem(cls, arguments):
        return register_object(loss)
    return _item(register_function(cls), arguments)


def item_setting(item: object, argument: str) -> Item:
    """Returns the setting of a loss or a metric of any form: a name, a function, an object."""
    if isinstance(item, str):
        return item
    if isinstance(item, Mapping):
        return dict(item)
    if argument == "loss" and hasattr(item, "get_config") and not isinstance(item, type):
        return loss_setting(item)
    if not callable(item) or not hasattr(item, "__qualname__"):
        raise RunnerError(
            f"{argument}: got {type(item).__name__}, expected a name, a section such as "
            "{'name': 'huber', 'delta': 0.5}, a function or a class",
            code="wrong-type",
        )
    return register_function(item)


def loss_settings(loss: Any) -> Any:
    """Returns the setting `task.loss` of a loss, or of losses by output."""
    if isinstance(loss, Mapping) and NAME not in loss:
        return {str(name): _optional_loss(item) for name, item in loss.items()}
    if isinstance(loss, (list, tuple)):
        return [_optional_loss(item) for item in loss]
    return item_setting(loss, "loss")


def _optional_loss(item: object) -> Item | None:
    return None if item is None else item_setting(item, "loss")


def output_metric_settings(metrics: Any) -> Any:
    """Returns the setting `task.metrics` of metrics, or of metrics by output."""
    if isinstance(metrics, Mapping):
        return {str(name): _listed_metrics(items) for name, items in metrics.items()}
    if any(isinstance(item, (list, tuple)) for item in metrics):
        return [_listed_metrics(items) for items in metrics]
    return [item_setting(item, "metrics") for item in metric_settings(metrics)]


def _listed_metrics(items: object) -> list[Item]:
    listed = items if isinstance(items, (list, tuple)) else [] if items is None else [items]
    return [item_setting(item, "metrics") for item in metric_settings(listed)]


def metric_settings(metrics: Sequence[Any]) -> list[Any]:
    """Returns the setting `task.metrics` of metrics, some of which are objects."""
    items: list[Any] = []
    taken: set[str] = set()
    for metric in metrics:
        is_object = hasattr(metric, "update_state") and not isinstance(metric, type)
        item = _metric_setting(metric) if is_object else metric
        if not isinstance(item, (str, Mapping)):
            items.append(item)
            continue
        name, arguments = split_item(item)
        shown = str(arguments.get(ALIAS) or name)
        if is_object and shown in taken:  # Keras numbers metrics of a class, too.
            number = sum(other.rpartition("_")[0] == shown for other in taken) + 1
            shown = f"{shown.rpartition(':')[2]}_{number}"
            item = {NAME: name, **arguments, ALIAS: shown}
        taken.add(shown)
        items.append(item)
    return items


def _metric_setting(metric: Any) -> Item:
    cls = type(metric)
    config = _config(metric)
    item = _keras_item("metrics", metric, config)
    if item is not None:
        unnamed = {name: value for name, value in metric.get_config().items() if name != "name"}
        default = _without_number(cls.from_config(unnamed).name)
        return item if _without_number(metric.name) == default else _named(item, metric.name)
    _check_module(cls, "metrics")
    arguments = _arguments(config)
    problem = _constructor_problem(cls, arguments)
    if problem:
        raise RunnerError(
            f"{cls.__name__} cannot be built again for each evaluation: {problem}\n"
            "define get_config, which returns the arguments of the constructor, or pass the class",
            path="metrics",
            code="not-supported",
        )
    item = _item(register_function(cls), arguments)
    is_default = _without_number(metric.name) == snake_case(cls.__name__)
    return item if is_default else _named(item, metric.name)


def _keras_item(kind: str, item: Any, config: Mapping[str, Any]) -> Item | None:
    """Returns the setting of an object of Keras' own class; None for other classes."""
    cls = type(item)
    arguments = _arguments(config)
    reference = find_class(kind, cls.__name__)
    if cls.__module__.partition(".")[0] == "keras":
        arguments = {**function_arguments(item), **arguments}
        arguments = _without_defaults(arguments, _constructor_defaults(cls))
        if reference is None:  # Keras 2 has no such class.
            return _item(f"keras.{kind}:{cls.__name__}", arguments)
    elif reference != f"{cls.__module__}:{cls.__name__}":
        return None
    signature = declared_parameters(reference)
    parameters = signature.parameters if isinstance(signature, Signature) else ()
    defaults = {parameter.name: parameter.default for parameter in parameters}
    return _item(snake_case(cls.__name__), _without_defaults(arguments, defaults))


def _constructor_defaults(cls: type) -> dict[str, object]:
    return {name: value.default for name, value in inspect.signature(cls).parameters.items()}


def _without_defaults(
    arguments: Mapping[str, Any], defaults: Mapping[str, object]
) -> dict[str, Any]:
    return {
        name: value
        for name, value in arguments.items()
        if not (name in defaults and defaults[name] == value)
    }


def _check_module(cls: type, argument: str) -> None:
    """Raises `RunnerError` for classes of Keras that no setting names."""
    if cls.__module__.partition(".")[0] == "tf_keras":
        raise RunnerError(
            f"got {cls.__module__}.{cls.__name__}, which no setting describes\n"
            "pass its name or a function",
            path=argument,
            code="not-supported",
        )


def _arguments(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name not in _NOT_ARGUMENTS}


def _constructor_problem(cls: type, arguments: Mapping[str, Any]) -> str:
    """Returns why a constructor with these arguments does not make the same object, or ""."""
    signature = inspect.signature(cls)
    try:
        signature.bind(**arguments)
        json.dumps(arguments)
    except (TypeError, ValueError) as error:
        return str(error)
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    missing = [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.kind in named and parameter.name not in (*_NOT_ARGUMENTS, *arguments)
    ]
    return f"get_config does not return {', '.join(missing)}" if missing else ""


def _item(name: str, arguments: Mapping[str, Any]) -> Item:
    return {NAME: name, **arguments} if arguments else name


def _named(item: Item, alias: str) -> Item:
    name, arguments = split_item(item)
    return {NAME: name, **arguments, ALIAS: alias}


def _without_number(name: str) -> str:
    return re.sub(r"_\d+$", "", name)
