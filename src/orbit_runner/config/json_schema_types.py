"""The JSON Schema of single values: types, limits, and references to other settings."""

from __future__ import annotations

import typing
from collections.abc import Mapping, Sequence
from typing import Any

from orbit_runner.config.durations import ALLOWED, PATTERN
from orbit_runner.config.parsing.conversion import describe_type, options_of
from orbit_runner.config.schema.base import FLOAT_MAX, INT_MAX

REFERENCE_NAME = "reference"
_REFERENCE = r"\$\{[^{}]+\}"
_TYPES = {int: "integer", float: "number", bool: "boolean", str: "string"}
# Numbers of YAML 1.1 or 1.2 that a parser for the other version reads as strings.
_INTEGER = r"^[-+]?[0-9]+(_[0-9]+)+$|^0o[0-7]+$"
_NUMBER = rf"{_INTEGER}|^[-+]?(\.[0-9]+|[0-9]+(_[0-9]+)*(\.[0-9]*)?)([eE][-+]?[0-9]+)$"
_STRINGS = {int: _INTEGER, float: _NUMBER}
# What is accepted in addition in Model Garden's experiments.
_LENIENT = {
    int: r"^\s*[-+]?[0-9_]+\s*$",
    float: r"^\s*[-+]?[0-9_.]+([eE][-+]?[0-9]+)?\s*$",
    bool: r"^([yY][eE][sS]|[nN][oO]|[oO][nN]|[oO][fF][fF])$",
}


def reference_schema() -> dict[str, Any]:
    """Returns the schema of a string that refers to another setting."""
    return {
        "description": "a reference to another setting: ${section.name}",
        "type": "string",
        "pattern": _REFERENCE,
    }


def type_schema(hint: Any, meta: Mapping[str, Any], *, lenient: bool = False) -> dict[str, Any]:
    """Returns the schema of the values of a setting.

    Args:
        hint: The type of the setting.
        meta: The metadata of its field, which contains the limits.
        lenient: Whether values are accepted as in Model Garden; see `Builder`.
    """
    schema: dict[str, Any] = {}
    types, patterns = list[str](), [_REFERENCE]
    for option in options_of(hint):
        origin = typing.get_origin(option)
        if option is Any:
            return {}
        if option in _TYPES:
            types.append(_TYPES[option])
            schema |= _limit_keywords(option, meta)
            patterns += [table[option] for table in _pattern_tables(lenient) if option in table]
        elif option in (None, type(None)):
            types.append("null")
        elif isinstance(origin, type) and issubclass(origin, Sequence):
            types.append("array")
            item = typing.get_args(option)[0]
            schema["items"] = type_schema(item, _item_metadata(meta), lenient=lenient)
        else:
            types.append("object")
    if lenient and "string" in types:
        types.append("integer")
    if "string" not in types and types != ["object"]:
        types.append("string")
        schema["pattern"] = "|".join(patterns)
        # Editors of the Visual Studio Code family show it instead of the pattern.
        schema["patternErrorMessage"] = f"expected {describe_type(hint)}, or ${{section.name}}"
    if meta.get("word"):
        schema["pattern"] = "|".join([f"^{meta['word']}$", *patterns])
        expected = " or ".join(describe_type(one) for one in options_of(hint) if one is not str)
        schema["patternErrorMessage"] = f"expected {expected}, {meta['word']}, or ${{section.name}}"
    if meta.get("duration"):
        schema["pattern"] = f"{PATTERN}|{_REFERENCE}"
        schema["patternErrorMessage"] = f"expected {ALLOWED}"
    types = [*dict.fromkeys(types)]
    return {"type": types if len(types) > 1 else types[0], **schema}


def _pattern_tables(lenient: bool) -> list[dict[Any, str]]:
    return [_STRINGS, _LENIENT] if lenient else [_STRINGS]


def _item_metadata(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the metadata of the items of a list: limits do not apply to lists inside it."""
    if meta.get("is_item"):
        return {"merged": True, "is_item": True}
    return {**meta, "is_item": True}


def _limit_keywords(kind: type, meta: Mapping[str, Any]) -> dict[str, float]:
    if kind not in (int, float):
        return {}
    widest = None if meta.get("merged") else INT_MAX if kind is int else FLOAT_MAX
    limits = {
        "minimum": _first_limit(meta.get("ge"), None if widest is None else -widest),
        "maximum": _first_limit(meta.get("le"), widest),
        "exclusiveMinimum": meta.get("gt"),
        "exclusiveMaximum": meta.get("lt"),
    }
    return {key: limit for key, limit in limits.items() if limit is not None}


def _first_limit(limit: float | None, widest: float | None) -> float | None:
    return widest if limit is None else limit
