"""Loads classes of the user, which a config names with their module: `my_package.MyCallback`."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

from orbit_runner.errors import SettingError, unknown_name_message


def load_class(class_name: str, base: type, arguments: Mapping[str, Any], path: str) -> type[Any]:
    """Returns a subclass of a class of the public API.

    `path` is the dotted path of the section with the settings `class_name` and `arguments`. Raises
    SettingError if the class does not exist, is not a subclass, or takes other arguments.
    """
    cls = _import_class(class_name, base, f"{path}.class_name")
    try:
        inspect.signature(cls).bind(**arguments)
    except TypeError as error:
        raise SettingError(f"{path}.arguments", f"{class_name}: {error}") from error
    return cls


def _import_class(class_name: str, base: type, path: str) -> type[Any]:
    module_name, _, name = class_name.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except (ImportError, ValueError) as error:
        raise SettingError(path, f"cannot import {module_name!r}: {error}") from error
    found = getattr(module, name, None)
    if isinstance(found, type) and issubclass(found, base):
        return found
    if found is not None:
        raise SettingError(path, f"{class_name} is not a subclass of orbit_runner.{base.__name__}")
    here = (one for one in vars(module).values() if isinstance(one, type))
    known = [one.__name__ for one in here if issubclass(one, base) and one is not base]
    raise SettingError(
        path, f"{module_name}: {unknown_name_message(base.__name__.lower(), name, known)}"
    )
