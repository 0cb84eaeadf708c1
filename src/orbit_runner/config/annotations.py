"""Compares values of a config with the annotations of a function, which are read as text."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

_NUMBER_TYPES = (int, float)
_LIST_NAMES = ("list", "tuple", "List", "Tuple", "Sequence", "Iterable")
_TYPES: dict[str, Any] = {"int": int, "float": _NUMBER_TYPES, "str": str, "bool": bool}


def has_type(annotation: str, value: Any) -> bool:
    """Returns whether a value has the type of an annotation; True for unusual annotations."""
    try:
        return _fits(ast.parse(annotation, mode="eval").body, value)
    except SyntaxError:
        return True


def _fits(node: ast.expr, value: Any) -> bool:
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            return has_type(node.value, value)
        return node.value is not None or value is None
    if isinstance(node, ast.BinOp):
        return _fits(node.left, value) or _fits(node.right, value)
    if not isinstance(node, ast.Subscript):
        return _is_instance_of(last_name(node), value)
    name, inner = last_name(node.value), node.slice
    options = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    if name in ("Optional", "Union"):
        return (name == "Optional" and value is None) or any(_fits(one, value) for one in options)
    if name == "Literal":
        return value in [one.value for one in options if isinstance(one, ast.Constant)]
    fits = _is_instance_of(name, value)
    if fits and name in _LIST_NAMES:
        return all(_fits(options[0], item) for item in value)
    return fits


def last_name(node: ast.expr) -> str:
    """Returns the last part of a dotted name; "" for any other expression."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _is_instance_of(name: str, value: Any) -> bool:
    if name in _LIST_NAMES:
        return isinstance(value, (list, tuple))
    if name in ("dict", "Dict", "Mapping"):
        return isinstance(value, Mapping)
    if name not in _TYPES:
        return True
    return isinstance(value, _TYPES[name]) and (name == "bool" or not isinstance(value, bool))
