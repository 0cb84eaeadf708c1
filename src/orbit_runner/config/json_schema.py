"""Builds the JSON Schema of config files, with which editors complete and check them.

The schema describes a file, not a complete config: nothing is required, because other files and
flags add the rest, and a section may be empty.
"""

from __future__ import annotations

import dataclasses
import json
import math
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orbit_runner.config.describe import default_section, registry_names, remark
from orbit_runner.config.durations import ALLOWED, PATTERN
from orbit_runner.config.parsing.conversion import describe_type, item_class, options_of
from orbit_runner.config.parsing.value_checks import default_of
from orbit_runner.config.schema.base import FLOAT_MAX, INT_MAX, Config, GardenOnly, OneOf
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.serialize import plain_value

if TYPE_CHECKING:
    from orbit_runner.config.schema.base import Metadata
    from orbit_runner.registration import Registry

Schema = dict[str, Any]

_DIALECT = "http://json-schema.org/draft-07/schema#"
_SECTION = ["object", "null"]
_BASE = {
    "description": "files to build on; this file overrides them",
    "type": ["string", "array"],
    "items": {"type": "string"},
}
_JSON_TYPES = {int: "integer", float: "number", bool: "boolean", str: "string"}
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


def format_json_schema(config: ExperimentConfig) -> str:
    """Returns the schema of the files that can set the settings of a config, as JSON."""
    return json.dumps(json_schema(config), indent=1, ensure_ascii=False) + "\n"


def json_schema(config: ExperimentConfig) -> Schema:
    """Returns the schema (draft-07) of the files that can set the settings of a config.

    A section that depends on a registry, such as `task` on `task.name`, has the settings of the
    entry that the file names. If it names none, it has those of the entry that `config` names, or
    if there is none, those of all entries. The defaults are the values of `config`.
    """
    sections = _Sections(lenient=bool(config.official))
    root = sections.schema_of(config, "")
    root["properties"] = {"base": _BASE, **root["properties"]}
    if not config.official:
        # The settings of Model Garden's tasks are known only after TensorFlow is imported.
        task = root["properties"]["task"]
        root["properties"]["task"] = {key: task[key] for key in ("description", "type")}
        garden = {"properties": {"official": {"minLength": 1}}, "required": ["official"]}
        root["allOf"] = [{"if": garden, "else": {"properties": {"task": task}}}]
    about = {"$schema": _DIALECT, "title": "A config file of Orbit Runner"}
    return {**about, **root, "definitions": sections.definitions}


class _Sections:
    """Builds the schemas of sections. Each is a definition, which several places can share."""

    def __init__(self, *, lenient: bool) -> None:
        self.definitions: dict[str, Schema] = {}
        self._lenient = lenient

    def schema_of(self, config: Config, path: str) -> Schema:
        """Returns the schema of a section itself, without its description."""
        hints = typing.get_type_hints(type(config))
        properties = {n: _garden_only_schema(s) for n, s in config.garden_only.items()}
        properties |= {
            field.name: self._property_schema(field, config, hints[field.name], path)
            for field in dataclasses.fields(config)
        }
        if isinstance(config, OneOf):
            return _one_block_schema(config, properties)
        return {"type": _SECTION, "additionalProperties": False, "properties": properties}

    def _section_schema(self, config: Config, path: str) -> Schema:
        return self._define_schema(type(config).__name__, path, self.schema_of(config, path))

    def _define_schema(self, name: str, path: str, schema: Schema) -> Schema:
        """Returns a reference to a definition; the path is added to a name with two schemas."""
        key = name
        if self.definitions.get(key, schema) != schema:
            key = f"{name}.{path}"
        number = 2
        while self.definitions.get(key, schema) != schema:
            key, number = f"{name}.{path}.{number}", number + 1
        self.definitions[key] = schema
        return {"$ref": f"#/definitions/{key}"}

    def _property_schema(
        self, field: dataclasses.Field[object], owner: Config, hint: object, path: str
    ) -> Schema:
        below = f"{path}.{field.name}" if path else field.name
        meta = field.metadata
        value = getattr(owner, field.name)
        section = value if isinstance(value, Config) else default_section(hint)
        about = _describe_setting(meta, below)
        if meta.get("variants") is not None and not (
            isinstance(owner, ExperimentConfig) and owner.official
        ):
            return {**about, **self._variant_schema(meta["variants"], section, hint, below)}
        if section is not None and section.shorthand:
            written = {"type": _SECTION, "allOf": [self._section_schema(section, below)]}
            return {**about, "anyOf": [{"type": "string"}, written]}
        if section is not None:
            return {**about, "type": _SECTION, "allOf": [self._section_schema(section, below)]}
        return {**about, **self._value_schema(field, owner, hint, below), **_default_keyword(value)}

    def _value_schema(
        self, field: dataclasses.Field[object], owner: Config, hint: object, path: str
    ) -> Schema:
        item = item_class(hint)
        meta = field.metadata
        if item is not None:
            item_schema = {"type": "object", "allOf": [self._section_schema(item(), f"{path}[]")]}
            items = {"anyOf": [{"type": "string"}, item_schema]} if item.shorthand else item_schema
            return {"type": "array", "items": items}
        if meta.get("unsupported"):
            return {"enum": [plain_value(default_of(field))]}
        allowed: Iterable[object] = meta.get("allowed") or ()
        if isinstance(owner, OneOf) and field.name == "type":
            allowed = (*owner.choices(), None)
        elif meta.get("registry") is not None:
            allowed = registry_names(meta["registry"])
        if allowed:
            return _choice_schema(allowed, lowercase=bool(meta.get("lowercase")))
        return _type_schema(hint, meta, lenient=self._lenient)

    def _variant_schema(self, registry: Registry, base: Any, hint: Any, path: str) -> Schema:
        """Returns the schema of a section whose settings depend on its `name`."""
        chosen = getattr(base, "name", None)
        by_name = dict[str, Schema]()
        for entry in registry.entries():
            cls = entry.load_config()
            is_base = chosen == entry.name and type(base) is cls
            by_name[entry.name] = self._section_schema(
                base if is_base else cls(name=entry.name), path
            )
        if chosen:
            unnamed = by_name.get(chosen) or self._section_schema(base, path)
        else:
            unnamed = self._define_schema(
                f"Any{hint.__name__}", path, self._union_schema([*by_name.values()])
            )
        names = _choice_schema(by_name)
        names["description"] = dict(_field_help(hint)).get("name", "")
        return {
            "type": _SECTION,
            "properties": {"name": names},
            "allOf": _conditions("name", by_name, unnamed),
        }

    def _union_schema(self, references: Sequence[Schema]) -> Schema:
        """Returns the schema of a section with the settings of several classes."""
        schemas_by_name: dict[str, list[Schema]] = {}
        for reference in references:
            schema = self.definitions[reference["$ref"].rpartition("/")[2]]
            for name, below in schema["properties"].items():
                schemas_by_name.setdefault(name, []).append(below)
        properties = {name: _any_of_schema(schemas) for name, schemas in schemas_by_name.items()}
        return {"type": _SECTION, "additionalProperties": False, "properties": properties}


def _one_block_schema(config: OneOf, properties: dict[str, Schema]) -> Schema:
    """Returns the schema of a section with one block per choice.

    All blocks are allowed, because the reader accepts those that `type` does not choose. Editors
    suggest `properties`, but not `patternProperties`, so they suggest only the chosen block.
    """
    blocks = {name: schema for name, schema in properties.items() if name != "type"}
    suggested = {
        name: {key: schema[key] for key in ("description", "type")}
        for name, schema in blocks.items()
        if name in config.choices()
    }
    chosen = {name: {"properties": {name: schema}} for name, schema in suggested.items()}
    return {
        "type": _SECTION,
        "additionalProperties": False,
        "properties": {"type": properties["type"]},
        "patternProperties": {
            **{f"^{name}$": schema for name, schema in blocks.items()},
            **{f"^{name}$": {} for name in config.unavailable},
        },
        "allOf": _conditions("type", chosen, {"properties": suggested}),
    }


def _conditions(key: str, by_name: Mapping[str, Schema], otherwise: Schema) -> list[Schema]:
    """Returns conditions that apply the schema of the name that a key has, or another one."""
    cases: list[Schema] = [
        {"if": {"properties": {key: {"const": name}}, "required": [key]}, "then": schema}
        for name, schema in by_name.items()
    ]
    known = {"properties": {key: {"enum": [*by_name]}}, "required": [key]}
    return [*cases, {"if": known, "else": otherwise}]


def _any_of_schema(schemas: Sequence[Schema]) -> Schema:
    """Returns a schema that any of several schemas satisfies."""
    distinct = [schema for index, schema in enumerate(schemas) if schema not in schemas[:index]]
    return distinct[0] if len(distinct) == 1 else {"anyOf": distinct}


def _garden_only_schema(setting: GardenOnly) -> Schema:
    """Returns the schema of a setting that has no meaning here."""
    # Editors of the Visual Studio Code family show the message, and do not suggest the setting.
    about: Schema = {"deprecated": True, "deprecationMessage": f"no effect: {setting.reason}"}
    return about | ({"enum": [setting.default]} if setting.refused else {})


def _describe_setting(meta: Metadata, path: str) -> Schema:
    """Returns the description of a setting, and whether it has no effect."""
    text = remark(meta, path)
    description = str(meta.get("help", "")) + (f" ({text})" if text else "")
    if meta.get("unsupported"):
        # Editors of the Visual Studio Code family show the message, and do not suggest the setting.
        return {"description": description, "deprecated": True, "deprecationMessage": text}
    return {"description": description}


def _default_keyword(value: object) -> Schema:
    if isinstance(value, float) and not math.isfinite(value):
        return {}  # JSON cannot represent it.
    return {"default": plain_value(value)}


def _choice_schema(allowed: Iterable[Any], *, lowercase: bool = False) -> Schema:
    values = [*allowed]
    if not lowercase:
        return {"enum": values}
    # Regular expressions of JSON Schema have no flag to ignore the case.
    words = ("".join(f"[{c.lower()}{c.upper()}]" for c in word) for word in values)
    return {"anyOf": [{"enum": values}, {"type": "string", "pattern": f"^({'|'.join(words)})$"}]}


def _field_help(cls: type[Config]) -> list[tuple[str, str]]:
    return [(field.name, field.metadata["help"]) for field in dataclasses.fields(cls)]


def _type_schema(hint: object, meta: Metadata, *, lenient: bool = False) -> Schema:
    """Returns the schema of the values of a setting.

    Args:
        hint: The type of the setting.
        meta: The metadata of its field, which contains the limits.
        lenient: Whether values are accepted as in Model Garden; see `Builder`.
    """
    schema: Schema = {}
    types = list[str]()
    patterns = list[str]()
    for option in options_of(hint):
        origin = typing.get_origin(option)
        if option is Any:
            return {}
        if option in _JSON_TYPES:
            types.append(_JSON_TYPES[option])
            schema |= _limit_keywords(option, meta)
            patterns += [table[option] for table in _pattern_tables(lenient) if option in table]
        elif option in (None, type(None)):
            types.append("null")
        elif isinstance(origin, type) and issubclass(origin, Sequence):
            types.append("array")
            item = typing.get_args(option)[0]
            schema["items"] = _type_schema(item, _item_metadata(meta), lenient=lenient)
        else:
            types.append("object")
    if lenient and "string" in types:
        types.append("integer")
    if "string" not in types and patterns:
        types.append("string")
        schema["pattern"] = "|".join(patterns)
        # Editors of the Visual Studio Code family show it instead of the pattern.
        schema["patternErrorMessage"] = f"expected {describe_type(hint)}"
    if meta.get("word"):
        schema["pattern"] = "|".join([f"^{meta['word']}$", *patterns])
        expected = " or ".join(
            describe_type(option) for option in options_of(hint) if option is not str
        )
        schema["patternErrorMessage"] = f"expected {expected}, or {meta['word']}"
    if meta.get("duration"):
        schema["pattern"] = PATTERN
        schema["patternErrorMessage"] = f"expected {ALLOWED}"
    types = [*dict.fromkeys(types)]
    return {"type": types if len(types) > 1 else types[0], **schema}


def _pattern_tables(lenient: bool) -> list[dict[Any, str]]:
    return [_STRINGS, _LENIENT] if lenient else [_STRINGS]


def _item_metadata(meta: Metadata) -> dict[str, object]:
    """Returns the metadata of the items of a list: limits do not apply to lists inside it."""
    if meta.get("is_item"):
        return {"merged": True, "is_item": True}
    return {**meta, "is_item": True}


def _limit_keywords(kind: type, meta: Metadata) -> dict[str, float]:
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
