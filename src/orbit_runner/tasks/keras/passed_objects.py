"""Arrays, functions and models that a Python program passed to `orbit_runner.run`, by name."""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

from orbit_runner.data.indexed import describe_examples
from orbit_runner.data.source import ArraySource
from orbit_runner.errors import SettingError, first_line, nearest_name_hint
from orbit_runner.utils.user_code import add_function

KERAS_BACKEND_ADVICE = (
    "set KERAS_BACKEND=tensorflow in the environment, and remove another backend from "
    "~/.keras/keras.json"
)
# By digest and by `module:name`.
ARRAYS: dict[str, ArraySource] = {}
FUNCTIONS: dict[str, Callable[..., object]] = {}
MODELS: dict[str, Any] = {}  # By digest: models of Keras 2 and Keras 3.


def register_arrays(source: ArraySource) -> str:
    """Registers arrays for runs in this process. Returns the digest that names them in a config."""
    text = "\n".join(f"{row.name} {row.digest}" for row in describe_examples(source))
    digest = hashlib.sha256(text.encode()).hexdigest()
    ARRAYS[digest] = source
    return digest


def register_function(function: Callable[..., object]) -> str:
    """Returns the name of a function for a config, and registers it if it cannot be imported."""
    if is_importable(function):
        return f"{function.__module__}:{function.__qualname__}"
    name = getattr(function, "__qualname__", "") or type(function).__qualname__
    plain = name.rpartition(".")[2].strip("<>") or "function"
    reference = f"{getattr(function, '__module__', None) or '__main__'}:{plain}"
    FUNCTIONS[reference] = function
    add_function(reference, function)
    return reference


def register_object(item: Callable[..., object]) -> str:
    """Returns the name of an object for a config of this process; no other process finds it."""
    reference = f"__main__:{type(item).__name__}"
    FUNCTIONS[reference] = item
    return reference


def is_importable(function: Callable[..., object]) -> bool:
    """Returns whether another process finds a function by its module and its name."""
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", "")
    if not module or module == "__main__" or not name.isidentifier():
        return False
    return getattr(sys.modules.get(module), name, None) is function


def script_problem(reference: str) -> str:
    """Returns why a function of another script cannot be found, or "" if it is not of a script."""
    if not reference.startswith("__main__:") or reference in FUNCTIONS:
        return ""
    return (
        f"{reference} was defined in a script or notebook, so only this one finds it\n"
        "move it to a module, and pass it to orbit_runner.run from there"
    )


def load_function(reference: str, path: str) -> Callable[..., Any]:
    """Returns a function or class `module:name`. `path` is the setting that names it.

    Raises `SettingError` if it cannot be imported.
    """
    if reference in FUNCTIONS:
        return FUNCTIONS[reference]
    module_name, _, name = reference.partition(":")
    if problem := script_problem(reference):
        raise SettingError(path, problem, code="import-failed")
    try:
        module = importlib.import_module(module_name)
    except (ImportError, ValueError) as error:
        message = f"cannot import {module_name!r}: {first_line(error)}"
        if os.environ.get("KERAS_BACKEND", "tensorflow") != "tensorflow":
            message += f"\nKeras 3 needs another backend here: {KERAS_BACKEND_ADVICE}"
        raise SettingError(path, message, code="import-failed") from error
    attribute = getattr(module, name, None)
    if not callable(attribute):
        reason = "is not a function or class" if attribute is not None else "does not exist"
        known = [key for key, value in vars(module).items() if callable(value)]
        raise SettingError(
            path, f"{reference} {reason}{nearest_name_hint(name, known)}", code="import-failed"
        )
    result: Callable[..., object] = attribute
    return result
