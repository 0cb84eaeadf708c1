"""Checks of settings that name a class of the user, such as `my_package.MyCallback`."""

from __future__ import annotations

import importlib.util


def class_name_problem(class_name: str, example: str) -> str:
    """Returns what is wrong with the name of a class, or "" if it has a module and a class."""
    module, _, name = class_name.rpartition(".")
    if all(part.isidentifier() for part in (*module.split("."), name)):
        return ""
    return f"got {class_name!r}, expected a module and a class: {example}"


def module_problem(class_name: str) -> str:
    """Returns why the module of a class is not found, or "". The class is loaded later."""
    module = class_name.rpartition(".")[0]
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError) as error:
        return f"cannot import {module!r}: {error}"
    if found is not None:
        return ""
    return (
        f"no module named {module!r}\n"
        "run from the directory that contains it, or add that directory to PYTHONPATH"
    )
