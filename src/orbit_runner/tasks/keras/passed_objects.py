"""Arrays, functions and models that a Python program passed to `orbit_runner.run`, by name.

A function that cannot be imported has a name of the form `__main__:name`, which no other process
finds. Functions of one name are numbered in each run: `__main__:lambda`, `__main__:lambda_2`.
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from orbit_runner.config.schema.base import Config
from orbit_runner.config.serialize import plain_value
from orbit_runner.config.signatures import actual_parameters, argument_problems
from orbit_runner.errors import SettingError
from orbit_runner.utils.code_digest import code_digest, is_importable
from orbit_runner.utils.user_code import PASSED, PASSED_CODE, import_function, is_other

ARRAYS: dict[str, Any] = {}  # By digest: `ArrayExamples` and `StreamSource`s.
MODELS: dict[str, Any] = {}  # By digest: models of Keras 2 and Keras 3.
# The functions and objects that were passed in this process last, by name.
FUNCTIONS: dict[str, Callable[..., Any]] = {}
# Those of the current run, by name.
_of_run: dict[str, Callable[..., Any]] = {}
# The digests of the functions that the current run was trained with, if it is loaded.
_trained: dict[str, str] = {}


@contextlib.contextmanager
def passed_functions_scope(trained: Mapping[str, str] | None = None) -> Iterator[None]:
    """Lets names be those of functions of one run in a `with` block.

    `trained` are the digests of the functions that a run was trained with, if it is loaded.
    """
    tables: tuple[dict[str, Any], ...] = (_of_run, _trained, PASSED_CODE)
    before = [{**table} for table in tables]
    for table in tables:
        table.clear()
    _trained.update(trained or {})
    try:
        yield
    finally:
        for table, values in zip(tables, before, strict=True):
            table.clear()
            table.update(values)


def register_function(function: Callable[..., object]) -> str:
    """Returns the name of a function for a config, and registers it if it cannot be imported."""
    if is_importable(function):
        return f"{function.__module__}:{function.__qualname__}"
    named: Any = function
    while isinstance(named, functools.partial):
        named = named.func
    return _register(function, getattr(named, "__name__", "") or type(named).__name__)


def register_object(item: Callable[..., object]) -> str:
    """Returns the name of an object for a config of this process; no other process finds it."""
    return _register(item, type(item).__name__)


def _register(item: Callable[..., object], name: str) -> str:
    plain = name.strip("<>")
    plain = plain if plain.isidentifier() else "function"
    reference = f"{PASSED}{plain}"
    number = 1
    while reference in _of_run and not _is_same(_of_run[reference], item):
        number += 1
        reference = f"{PASSED}{plain}_{number}"
    _of_run[reference] = FUNCTIONS[reference] = item
    PASSED_CODE[reference] = code_digest(item)
    return reference


def _is_same(known: object, item: object) -> bool:
    # Python makes a method of an object anew each time.
    return known is item or (isinstance(item, types.MethodType) and known == item)


def inexact_objects(config: Config, path: str = "") -> list[str]:
    """Returns why what a program passed keeps a config from reproducing the run.

    `path` is that of the config, such as `task`.
    """
    reasons = []
    for name, text in _texts(plain_value(config), path):
        if text in FUNCTIONS:
            setting = name.removesuffix(".class_name")  # of a loss, metric or optimizer
            reasons.append(f"{setting}: {text} cannot be imported by its name")
        elif text in ARRAYS and not getattr(ARRAYS[text], "repeats", True):
            section = name.rpartition(".")[0]
            reasons.append(
                f"{section}: the dataset has other batches each time that it is read; pass the "
                "function that returns it, whose shuffling the run seeds"
            )
    return reasons


def _texts(value: object, path: str) -> Iterator[tuple[str, str]]:
    """Yields the texts in nested values, by path."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _texts(item, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, f"{path}[{index}]")
    elif isinstance(value, str):
        yield path, value


def script_problem(reference: str) -> str:
    """Returns why a function of another script cannot be found, or "" if it is not of a script."""
    if not reference.startswith(PASSED) or reference in FUNCTIONS:
        return ""
    return (
        f"{reference} was passed by a script or notebook, and only that finds it\n"
        "put it into a module, as a function of its own, and pass it to orbit_runner.run from there"
    )


def load_function(reference: str, path: str) -> Callable[..., Any]:
    """Returns a function or class `module:name`. `path` is the setting that names it.

    Raises `SettingError` if it cannot be imported.
    """
    if reference in _of_run:
        return _of_run[reference]
    if reference in FUNCTIONS:
        return _find_trained(reference, path)
    if problem := script_problem(reference):
        raise SettingError(path, problem, code="import-failed")
    return import_function(reference, path)


def bound_function(
    reference: str, arguments: Mapping[str, Any], path: str, arguments_path: str
) -> Callable[[], Any]:
    """Returns a function `module:name` with its keyword arguments.

    `path` and `arguments_path` are the settings. Raises `SettingError` if it cannot be imported, or
    has no such arguments.
    """
    function = load_function(reference, path)
    plain = plain_value(arguments)
    if (signature := actual_parameters(function)) is not None:
        for problem in argument_problems(signature, plain, reference):
            raise SettingError(
                f"{arguments_path}.{problem.path}", problem.message, code=problem.code
            )
    return functools.partial(function, **plain)


def _find_trained(reference: str, path: str) -> Callable[..., Any]:
    """Returns a function of this process. Raises `SettingError` if a run was trained with another.

    The values that it reads may have changed since it was passed.
    """
    function = FUNCTIONS[reference]
    digest = _trained.get(reference)
    if digest is None or not is_other(digest, code_digest(function)):
        return function
    raise SettingError(
        path,
        f"{reference} is another function now, or reads other values, than when the run was "
        "trained\nrestore it, and pass it to orbit_runner.run again, or put each version into a "
        "module, under a name of its own",
        code="other-code",
    )
