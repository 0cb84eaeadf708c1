"""Converts values to the types of their fields, and describes types in words."""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from orbit_runner.config.parsing.tree import PythonTuple
from orbit_runner.config.parsing.yaml_files import parse_scalar
from orbit_runner.config.schema.base import Config, FrozenMapping
from orbit_runner.errors import shorten

BOOLEAN_WORDS = {"yes": True, "on": True, "no": False, "off": False}
_TYPE_NAMES = {str: "a string", int: "an integer", float: "a number", bool: "true or false"}


class Mismatch(ValueError):
    """A value that its field does not allow. `code` is one of `error_codes.CODES`."""

    def __init__(self, message: str, code: str = "wrong-type") -> None:
        super().__init__(message)
        self.code = code


def options_of(hint: object) -> tuple[object, ...]:
    """Returns the members of a union. For any other type, returns only the type."""
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return typing.get_args(hint) if is_union else (hint,)


def section_class(hint: object) -> type[Config] | None:
    """Returns the class of a section, which may be null, or None if the type is no section."""
    return _first_config(options_of(hint))


def _first_config(hints: Iterable[object]) -> type[Config] | None:
    return next(
        (hint for hint in hints if isinstance(hint, type) and issubclass(hint, Config)), None
    )


def item_class(hint: object) -> type[Config] | None:
    """Returns the class of the sections in a list, or None if the type is not such a list."""
    for option in options_of(hint):
        origin = typing.get_origin(option)
        if isinstance(origin, type) and issubclass(origin, Sequence):
            return _first_config(typing.get_args(option))
    return None


def convert(value: object, hint: object, *, lenient: bool = False) -> object:
    """Returns a value converted to the type of its field, with lists as tuples.

    Raises Mismatch if the value does not have the type. With `lenient`, an integer is accepted as a
    string, and a quoted number as a number.
    """
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return _convert_union(value, typing.get_args(hint), hint, lenient)
    if hint is Any:
        return _freeze(value)
    if origin is typing.Literal:
        return value if value in typing.get_args(hint) else _refuse(value, hint)
    if origin is not None and issubclass(origin, Mapping):
        return _freeze(value) if isinstance(value, Mapping) else _refuse(value, hint)
    if origin is not None and issubclass(origin, Sequence):
        if not isinstance(value, (list, tuple)):
            _refuse(value, hint)
        (item, *_) = typing.get_args(hint)
        return _tuple_like(value, (convert(part, item, lenient=lenient) for part in value))
    return _convert_scalar(_convert_quoted(value, hint) if lenient else value, hint)


def convert_unless_word(value: object, hint: object, word: str, *, lenient: bool = False) -> object:
    """Returns a value converted to the types of a union except strings, or the allowed word.

    Raises Mismatch if it is neither.
    """
    if value == word:
        return word
    types_but_string = tuple(option for option in options_of(hint) if option is not str)
    try:
        return _convert_union(value, types_but_string, hint, lenient)
    except Mismatch:
        expected = " or ".join(map(describe_type, types_but_string))
        return _refuse(value, hint, f"{expected} or {word!r}")


def _convert_union(
    value: object, options: tuple[object, ...], hint: object, lenient: bool
) -> object:
    exact = [option for option in options if isinstance(option, type) and type(value) is option]
    # Try the value unchanged first, so that a string that looks like a number can stay a string.
    for reread in (False, True) if lenient else (False,):
        for option in exact + list(options):
            try:
                return convert(value, option, lenient=reread)
            except Mismatch:
                continue
    return _refuse(value, hint)


def _convert_quoted(value: object, hint: object) -> object:
    """Returns an integer as a string if `hint` is str, and a quoted number as a number."""
    if hint is str and type(value) is int:
        return str(value)
    number = (
        parse_scalar(value.strip()) if hint in (int, float) and isinstance(value, str) else None
    )
    return number if type(number) in (int, float) else value


def _convert_scalar(value: object, hint: object) -> object:
    if hint in (None, type(None)):
        return None if value is None else _refuse(value, hint)
    if type(value) is hint:
        return value
    if hint is float and type(value) is int and abs(value) <= sys.float_info.max:
        return float(value)
    if hint is int and type(value) is float and value.is_integer():
        return int(value)
    return _refuse(value, hint)


def _freeze(value: object) -> object:
    if isinstance(value, Mapping):
        return FrozenMapping({key: _freeze(item) for key, item in value.items()})
    if not isinstance(value, (list, tuple)):
        return value
    return _tuple_like(value, (_freeze(item) for item in value))


def _tuple_like(value: object, items: Iterable[object]) -> tuple[object, ...]:
    return PythonTuple(items) if isinstance(value, PythonTuple) else tuple(items)


def _refuse(value: object, hint: object, expected: str = "") -> NoReturn:
    hint_text = "; put it in quotes" if hint is str and isinstance(value, (int, float)) else ""
    if bool in options_of(hint) and isinstance(value, str) and value.lower() in BOOLEAN_WORDS:
        hint_text = "; yes, no, on and off are strings in YAML 1.2"
    expected = expected or describe_type(hint)
    raise Mismatch(f"got {format_value(value)}, expected {expected}{hint_text}") from None


def format_value(value: object) -> str:
    """Returns a value in the form that errors show."""
    if value is None:
        return "null"
    return "a section" if isinstance(value, Mapping) else shorten(repr(value))


def describe_type(hint: object) -> str:
    """Returns a type in words, such as `an integer or null`."""
    if hint in (None, type(None)):
        return "null"
    if hint in _TYPE_NAMES:
        return _TYPE_NAMES[hint]
    if isinstance(hint, type) and issubclass(hint, Config):
        return f"a {hint.shorthand} or a section" if hint.shorthand else "a section"
    origin = typing.get_origin(hint)
    args = typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(describe_type(option) for option in args)
    if origin is typing.Literal:
        return " or ".join(map(repr, args))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return "a section"
    return f"a list, each item {describe_type(args[0])}" if args else str(hint)
