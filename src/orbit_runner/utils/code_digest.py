"""Digests of functions and other Python objects: what they compute with, not what they are called.

The digest of a function includes its code, its defaults, its closure and the global values that it
reads. What can be imported from a module counts by its name, because the source of each module of
the user is recorded on its own.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from orbit_runner.tf_internals import function_arguments
from orbit_runner.utils.user_code import is_installed

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...))
_MOST_VALUES = 100_000  # of an object, such as a long list in a closure
_MOST_LEVELS = 50


def code_digest(value: object) -> str:
    """Returns a digest of what a function or another object computes with.

    It is the same at each start of a program. It begins with the version of Python, because that
    determines the bytecode.
    """
    digest = _Digest()
    digest.add(value)
    return f"{sys.implementation.cache_tag}:{digest.hashed.hexdigest()}"


def is_importable(item: object) -> bool:
    """Returns whether another process finds a function or class by its module and its name."""
    module = getattr(item, "__module__", None)
    name = getattr(item, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__":
        return False
    return name.isidentifier() and getattr(sys.modules.get(module), name, None) is item


class _Digest:
    """Hashes a tree of values."""

    def __init__(self) -> None:
        self.hashed = hashlib.sha256()
        self._left = _MOST_VALUES
        self._above: list[object] = []

    def add(self, value: object) -> None:
        """Adds a value and all that it consists of."""
        self._left -= 1
        if self._left < 0:
            return
        if isinstance(value, _PLAIN):
            text = value if isinstance(value, bytes) else repr(value).encode("utf-8", "replace")
            self.hashed.update(f"{type(value).__name__} {len(text)} ".encode() + text)
        elif len(self._above) < _MOST_LEVELS and all(value is not other for other in self._above):
            self._above.append(value)
            for part in (type(value).__qualname__, *_parts(value), ...):
                self.add(part)
            self._above.pop()


def _parts(value: Any) -> Iterator[object]:
    """Yields what a value consists of."""
    if isinstance(value, (list, tuple)):
        yield from value
    elif isinstance(value, (set, frozenset)):
        plain = (*_PLAIN, tuple, frozenset)
        yield from sorted(repr(item) if isinstance(item, plain) else "" for item in value)
    elif isinstance(value, Mapping):
        for item in value.items():
            yield from item
    elif isinstance(value, types.CodeType):
        yield from (value.co_code, value.co_consts, value.co_names, value.co_varnames)
        yield from (value.co_freevars, value.co_cellvars, value.co_flags)
        yield from (value.co_argcount, value.co_kwonlyargcount)
    elif isinstance(value, types.MethodType):
        yield from (value.__func__, value.__self__)
    elif isinstance(value, functools.partial):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, (staticmethod, classmethod)):
        yield value.__func__
    elif isinstance(value, property):
        yield from (value.fget, value.fset)
    elif isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)):
        yield from (value.__module__, value.__qualname__)
        if is_importable(value):
            return
        yield getattr(value, "__wrapped__", None)
        if isinstance(value, type) and _is_own(value):
            yield from (value.__bases__, *_members(value))
        elif isinstance(value, types.FunctionType) and not is_installed(value.__code__.co_filename):
            yield from (value.__code__, value.__defaults__, value.__kwdefaults__)
            yield from _values_read(value)
    elif isinstance(value, types.ModuleType):
        yield value.__name__
    else:
        yield from (type(value), *_state(value))


def _is_own(cls: type) -> bool:
    """Returns whether a class is one of the user."""
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return cls.__module__ == "__main__" or (bool(file) and not is_installed(str(file)))


def _members(cls: type) -> Iterator[object]:
    """Yields the methods and values of a class, without those that only describe its source."""
    for name, value in vars(cls).items():
        if callable(value) or not name.startswith("__"):
            yield from (name, value)


def _values_read(function: types.FunctionType) -> Iterator[object]:
    """Yields the values that a function reads from outside, except those that it sets itself."""
    read: dict[str, None] = {}
    assigned = set()
    for code in _codes(function.__code__):
        for instruction in dis.get_instructions(code):
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                read[str(instruction.argval)] = None
            elif instruction.opname in ("STORE_GLOBAL", "STORE_DEREF"):
                assigned.add(str(instruction.argval))
    values = {name: function.__globals__[name] for name in read if name in function.__globals__}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            values[name] = cell.cell_contents
        except ValueError:  # The variable is not set yet.
            continue
    yield from (item for item in values.items() if item[0] not in assigned)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yields the code of a function and of the functions and classes in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _state(value: Any) -> Iterator[object]:
    """Yields the state of an object, as far as it is the same at each start of a program."""
    try:
        if isinstance(value, np.generic):
            yield repr(value)
        elif hasattr(value, "__array__") and not hasattr(value, "assign"):
            array = np.asarray(value)
            yield from (str(array.dtype), array.shape)
            yield array.tolist() if array.dtype.hasobject else array.tobytes()
        elif hasattr(value, "get_config"):
            config = value.get_config()
            yield {name: config[name] for name in config if name != "name"}  # It may have a number.
            yield function_arguments(value)  # The config of some losses lacks them.
        elif hasattr(value, "__wrapped__"):
            yield value.__wrapped__
        elif all(_is_own(cls) or _is_standard(cls) for cls in type(value).__mro__):
            yield vars(value)
    except Exception:  # The code of the object may raise any error.
        return


def _is_standard(cls: type) -> bool:
    return cls.__module__.partition(".")[0] in sys.stdlib_module_names
