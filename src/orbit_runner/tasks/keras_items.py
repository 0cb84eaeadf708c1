"""Losses, metrics and optimizers of Keras in a config, in the serialized form of Keras.

An item is a name that Keras knows, such as `mse`, or a class with its config:
`{class_name: Huber, config: {delta: 0.5}}`. A function or class of the user has the name
`my_package.losses:focal`. Imports neither Keras nor TensorFlow until an item is built.
"""

from __future__ import annotations

import copy
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

from orbit_runner.config.errors import Problem, wrong_type
from orbit_runner.config.serialize import plain_value
from orbit_runner.config.signatures import declared_parameters, reference_problem
from orbit_runner.errors import (
    RunnerError,
    SettingError,
    first_line,
    shorten,
    unknown_name_message,
)
from orbit_runner.tf_internals import function_arguments
from orbit_runner.utils.files import to_jsonable
from orbit_runner.utils.user_code import PASSED

CLASS_NAME, CONFIG = "class_name", "config"
# `module` and `registered_name` are what Keras adds; a name finds the class without them.
_KEYS = {CLASS_NAME, CONFIG, "module", "registered_name"}
_KINDS = {"losses": "loss", "metrics": "metric", "optimizers": "optimizer"}
# Keras chooses a class for these by the shapes of labels and outputs.
_CHOSEN_BY_SHAPE = {"metrics": ("accuracy", "acc"), "losses": ("crossentropy", "ce")}
_FORM = "expected a name, or {class_name: NAME, config: {…}}"
_SCHEDULE = "learning_rate"
_LAMBDA = '"__lambda__"'  # the class name of a function's bytecode
_COUNTS_TRACES = "tf_keras.src.optimizers.nadam.Nadam"
_INNER = "inner_optimizer"  # of loss scaling
_EXCLUDED = "exclude_from_weight_decay"  # names of variables, beside the config of an optimizer

Item = str | Mapping[str, Any]
# Attributes that `compile` and training change.
_CHANGED_BY_USE = ("name", "name_scope", "built", "allow_sum_over_batch_size")


def is_keras_class(cls: type) -> bool:
    """Returns whether a class is one of Keras itself."""
    return cls.__module__.partition(".")[0] in ("keras", "tf_keras")


def is_item(value: object) -> bool:
    """Returns whether a value is a name, or a class with its config."""
    return isinstance(value, str) or (isinstance(value, Mapping) and CLASS_NAME in value)


def split_item(item: Item) -> tuple[str, dict[str, Any] | None]:
    """Returns the name and the config of an item; None if it has no config."""
    if isinstance(item, str):
        return item, None
    return str(item[CLASS_NAME]), dict(item.get(CONFIG) or {})


def leaves_of(setting: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yields the items of a setting, which may be lists and mappings by output, with their paths.

    Values that are no items are yielded, too, except None and "".
    """
    if is_item(setting) or not isinstance(setting, (list, tuple, Mapping)):
        if setting is not None and setting != "":
            yield path, setting
    elif isinstance(setting, Mapping):
        for name, value in setting.items():
            yield from leaves_of(value, f"{path}.{name}")
    else:
        for number, value in enumerate(setting):
            yield from leaves_of(value, f"{path}[{number}]")


def item_problems(setting: Any, path: str) -> Iterator[Problem]:
    """Yields items that have another form, and functions and classes that do not exist."""
    for place, item in leaves_of(setting, path):
        if not is_item(item):
            yield wrong_type(place, f"got {shorten(repr(item))}, {_FORM}")
            continue
        if isinstance(item, Mapping) and (unknown := [key for key in item if key not in _KEYS]):
            message = unknown_name_message("key", str(unknown[0]), [CLASS_NAME, CONFIG])
            yield Problem(place, f"{message}\n{_FORM}", code="unknown-name")
            continue
        if isinstance(item, Mapping) and not isinstance(item.get(CONFIG) or {}, Mapping):
            yield wrong_type(place, f"got config: {item[CONFIG]!r}, {_FORM}")
            continue
        name = split_item(item)[0]
        if ":" in name and (problem := _user_problem(name)):
            yield Problem(place, problem, code="import-failed")


def _user_problem(reference: str) -> str:
    if reference.startswith(PASSED):  # Other processes read the config, too.
        return ""
    if problem := reference_problem(reference, "my_package.losses:focal"):
        return problem
    signature = declared_parameters(reference)
    return signature if isinstance(signature, str) else ""


def build_items(setting: Any, kind: str, keras: ModuleType, path: str) -> Any:
    """Returns a setting with what its items name; `""` and `()` are None.

    Args:
        setting: An item, or lists and mappings of items by output.
        kind: `losses`, `metrics` or `optimizers`.
        keras: The package `keras` or `tf_keras`, which decides what a name means.
        path: The setting, for messages.

    Raises:
        SettingError: There is no such name, or its config is wrong.
    """
    if setting is None or (not setting and isinstance(setting, (str, list, tuple, Mapping))):
        return None
    if is_item(setting):
        return build_item(setting, kind, keras, path)
    if isinstance(setting, Mapping):
        return {
            name: build_items(value, kind, keras, f"{path}.{name}")
            for name, value in setting.items()
        }
    return [
        build_items(value, kind, keras, f"{path}[{number}]") for number, value in enumerate(setting)
    ]


def _names_by_shape(kind: str, keras: ModuleType) -> tuple[str, ...]:
    """Returns the names that Keras resolves by the shapes of labels and outputs."""
    names = _CHOSEN_BY_SHAPE.get(kind, ())
    is_keras_2_metric = kind == "metrics" and keras.__name__ == "tf_keras"
    return names + _CHOSEN_BY_SHAPE["losses"] if is_keras_2_metric else names


def build_item(item: Item, kind: str, keras: ModuleType, path: str) -> Any:
    """Returns the loss, metric or optimizer of an item, in the form that `compile` takes.

    A name remains a name, because Keras names metrics by it. See `build_items`.
    """
    name, config = split_item(item)
    module = getattr(keras, kind)
    if ":" in name:
        from orbit_runner.tasks.keras.passed_objects import load_function

        loaded = load_function(name, path)
        if not isinstance(loaded, type):
            if config is not None:
                message = f"{name} is a function or an object, which takes no config"
                raise SettingError(path, message, code="bad-arguments")
            return _copy(loaded) if hasattr(loaded, "get_config") else loaded
    elif config is None and name in _names_by_shape(kind, keras):
        return name
    else:
        loaded = _find(module, name, kind, is_plain=config is None)
        if loaded is None:
            raise _unknown_name(name, kind, keras, path)
        if config is None and kind != "optimizers":
            return name
    if f"{loaded.__module__}.{loaded.__name__}" == _COUNTS_TRACES:
        raise SettingError(
            path,
            "Nadam of tf_keras counts its updates while a step is traced, so its weights depend on "
            "how often that happens\nuse legacy.Nadam, Adam, or Nadam of Keras 3",
            code="not-supported",
        )
    config = plain_value(config or {})
    excluded = config.pop(_EXCLUDED, None)
    if type(config.get(_SCHEDULE)) is int:  # Keras 3 takes no integers.
        config[_SCHEDULE] = float(config[_SCHEDULE])
    if isinstance(config.get(_SCHEDULE), Mapping):
        config[_SCHEDULE] = _schedule(config[_SCHEDULE], keras, f"{path}.config.{_SCHEDULE}")
    if isinstance(inner := config.get(_INNER), Mapping) and keras.__name__ == "tf_keras":
        config[_INNER] = build_item(inner, kind, keras, f"{path}.config.{_INNER}")
    built = _from_config(loaded, config, name, path)
    if excluded:
        built.exclude_from_weight_decay(var_names=excluded)
    return built


def _unknown_name(name: str, kind: str, keras: ModuleType, path: str) -> SettingError:
    values = vars(getattr(keras, kind))
    known = {key for key, value in values.items() if _is_public(key, value)}
    known |= {*_names_by_shape(kind, keras)[:1]}
    message = unknown_name_message(_KINDS[kind], name, sorted(known))
    return SettingError(path, message, code="unknown-name")


def _find(module: ModuleType, name: str, kind: str, *, is_plain: bool) -> Any:
    """Returns the class of a name; for a name without a config also a function."""
    if is_plain and kind != "optimizers":
        try:
            known = module.get(name)
        except (ValueError, TypeError):
            return None
        return None if isinstance(known, str) else known
    if name.startswith("legacy."):
        module, name = module.legacy, name.removeprefix("legacy.")
    cls = getattr(module, name, None)
    if cls is None:  # Names of optimizers are also known in lowercase.
        names = {key.lower(): key for key, value in vars(module).items() if isinstance(value, type)}
        cls = getattr(module, names.get(name.lower().replace("_", ""), ""), None)
    if cls is None and name.startswith("LossScaleOptimizer"):  # Of Keras 2.
        cls = sys.modules["tf_keras"].mixed_precision.LossScaleOptimizer
    return cls if isinstance(cls, type) else None


def _is_public(name: str, value: object) -> bool:
    helpers = ("get", "serialize", "deserialize")
    return not name.startswith("_") and callable(value) and name not in helpers


def _schedule(setting: Mapping[str, Any], keras: ModuleType, path: str) -> Any:
    name, config = split_item(setting)
    schedules = keras.optimizers.schedules
    if ":" in name:
        from orbit_runner.tasks.keras.passed_objects import load_function

        cls: Any = load_function(name, path)
    else:
        cls = getattr(schedules, name, None)
    if not isinstance(cls, type):
        known = [key for key, value in vars(schedules).items() if isinstance(value, type)]
        raise SettingError(path, unknown_name_message("schedule", name, known), code="unknown-name")
    return _from_config(cls, config or {}, name, path)


def _from_config(cls: type, config: Mapping[str, Any], name: str, path: str) -> Any:
    make: Callable[..., Any] = getattr(cls, "from_config", None) or (lambda values: cls(**values))
    try:
        return make(dict(config))
    except Exception as error:  # The code of the user may raise any error.
        # Layers of Keras 2, such as metrics, begin with the config.
        reason = str(error).rpartition("Exception encountered: ")[2]
        message = f"{name}: {first_line(Exception(reason) if reason else error)}"
        raise SettingError(path, message, code="bad-arguments") from error


def items_of(value: Any, argument: str) -> Any:
    """Returns the setting of what a Python program passed as an argument of `run` or `compile`.

    Lists and mappings by output stay what they are. Raises `RunnerError` for other values.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        if CLASS_NAME in value:
            return to_jsonable(dict(value))
        return {str(name): items_of(item, argument) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return _with_numbers([items_of(item, argument) for item in value])
    from orbit_runner.tasks.keras.passed_objects import register_function, register_object

    if getattr(value, f"_{_EXCLUDED}", None):
        raise RunnerError(
            f"{_EXCLUDED}(var_list=…): the variables are those of another model, of which a run "
            f"trains a copy\nname them instead: {_EXCLUDED}(var_names=['bias'])",
            path=argument,
            code="not-supported",
        )
    if hasattr(value, "get_config") and not isinstance(value, type):
        # A copy of a model may have other paths of variables, by which it chooses.
        by_path = type(value).__name__ == "MultiOptimizer"
        item = None if by_path else _object_item(value)
        if item is None and argument == "optimizer":
            raise RunnerError(
                f"got {type(value).__name__}, whose config lacks some of its arguments\n"
                "pass a function that builds the model and compiles it with the optimizer",
                path=argument,
                code="not-supported",
            )
        return item or register_object(value)
    if callable(value):
        if hasattr(value, "__qualname__") or hasattr(value, "__name__"):
            return register_function(value)
        return register_object(value)
    raise RunnerError(
        f"got {type(value).__name__}, expected a name, an object, a function or a class",
        path=argument,
        code="wrong-type",
    )


def _with_numbers(items: list[Any]) -> list[Any]:
    """Numbers the names of objects that repeat in a list, as Keras does: `auc`, `auc_1`."""
    taken: set[str] = set()
    for item in items:
        config = item.get(CONFIG) if isinstance(item, dict) else None
        name = config.get("name") if isinstance(config, dict) else None
        if config is None or not isinstance(name, str):
            continue
        number = 0
        while config["name"] in taken:
            number += 1
            config["name"] = f"{name}_{number}"
        taken.add(config["name"])
    return items


def _object_item(value: Any) -> dict[str, Any] | None:
    """Returns the class and the config of an object; None if it cannot be built from them."""
    from orbit_runner.tasks.keras.passed_objects import register_function

    cls = type(value)
    name = f"legacy.{cls.__name__}" if ".legacy." in cls.__module__ else cls.__name__
    try:
        config = _config_of(value)
        if _LAMBDA in json.dumps(config):
            return None
        rebuilt = cls.from_config(copy.deepcopy(config))
        if _config_of(rebuilt) != config or not _have_equal_values(rebuilt, value):
            return None
    except Exception:  # `get_config` and the constructor are code of the user.
        return None
    if names := _excluded_names(value):
        config[_EXCLUDED] = names
    return {CLASS_NAME: name if is_keras_class(cls) else register_function(cls), CONFIG: config}


def _have_equal_values(rebuilt: Any, value: Any) -> bool:
    """Returns whether the plain attributes that two objects have are equal.

    One of them may have been used, so that some of its attributes are variables by now.
    """
    first, second = _plain_values(rebuilt), _plain_values(value)
    return all(first[name] == second[name] for name in first.keys() & second.keys())


def _plain_values(value: Any) -> dict[str, Any]:
    """Returns the attributes that are numbers, texts and lists of these, without names."""
    plain = {}
    for name, attribute in vars(value).items():
        if name.strip("_") in _CHANGED_BY_USE or name.startswith(("_self_", f"_{_EXCLUDED}")):
            continue
        try:
            plain[name] = json.dumps(attribute)
        except (TypeError, ValueError):  # Variables, and lists of them.
            continue
    return plain


def _copy(value: Any) -> Any:
    # Not by `copy.copy`, for which Keras 3 serializes the object.
    duplicate = object.__new__(type(value))
    vars(duplicate).update(vars(value))
    return duplicate


def _excluded_names(optimizer: Any) -> list[str]:
    """Returns the names of the variables without weight decay, which `get_config` lacks."""
    pattern = getattr(optimizer, f"_{_EXCLUDED}_pattern", None)
    if pattern is not None:  # Of Keras 3.
        return sorted(pattern.pattern.split("|"))
    return [*getattr(optimizer, f"_{_EXCLUDED}_names", ())]


def _config_of(value: Any) -> dict[str, Any]:
    package = next(
        name
        for cls in type(value).__mro__
        if (name := cls.__module__.partition(".")[0]) in ("keras", "tf_keras", "builtins")
    )
    if package == "builtins":
        return dict(to_jsonable(value.get_config()))
    serialize = sys.modules[package].saving.serialize_keras_object
    config = dict(to_jsonable(serialize(value)[CONFIG]))
    # The config of some functions, such as Huber's, lacks their arguments.
    accepted = inspect.signature(type(value)).parameters
    for name, argument in function_arguments(value).items():
        if name in accepted:
            config.setdefault(name, to_jsonable(argument))
    return dict(_stable(config, type(value).__name__))


def _stable(config: Any, class_name: str) -> Any:
    """Returns a config with lists in place of arrays, and without the numbers in names.

    Keras adds a number to a name that depends on what the process has built before.
    """
    if isinstance(config, list):
        return [_stable(item, "") for item in config]
    if not isinstance(config, dict):
        return config
    if config.get(CLASS_NAME) in ("__numpy__", "__tensor__"):
        return config[CONFIG]["value"]
    inner = str(config.get(CLASS_NAME, ""))
    stable = {key: _stable(value, inner if key == CONFIG else "") for key, value in config.items()}
    name = re.sub(r"_\d+$", "", str(stable.get("name", "")))
    if name and name == re.sub(r"_\d+$", "", _default_name(class_name)):
        stable["name"] = name
    return stable


def _default_name(class_name: str) -> str:
    words = re.sub(r"(.)([A-Z][a-z0-9]+)", r"\1_\2", re.sub(r"\W+", "", class_name))
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", words).lower()
