"""Builds the JSON Schema of config files, with which editors complete and check them.

The schema describes a file, not a complete config: nothing is required, because other files and
flags add the rest, and a section may be empty.
"""

from __future__ import annotations

import json
import math
import typing
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from orbit_runner.config.describe import remark
from orbit_runner.config.parsing.conversion import options_of
from orbit_runner.config.parsing.value_checks import limits
from orbit_runner.config.schema.base import Config, OneOf, default_of
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.serialize import plain_value
from orbit_runner.config.walk import Node, nodes

if TYPE_CHECKING:
    from orbit_runner.config.schema.base import Metadata

Schema = dict[str, Any]

_DIALECT = "http://json-schema.org/draft-07/schema#"
_SECTION = ["object", "null"]
_BASE = {
    "description": "files to build on; this file overrides them",
    "type": ["string", "array"],
    "items": {"type": "string"},
}
# The keywords for the limits that `field` declares.
_LIMITS = {"ge": "minimum", "le": "maximum", "gt": "exclusiveMinimum", "lt": "exclusiveMaximum"}
_JSON_TYPES = {int: "integer", float: "number", bool: "boolean", str: "string"}


def format_json_schema(config: ExperimentConfig) -> str:
    """Returns the schema of the files that can set the settings of a config, as JSON."""
    return json.dumps(json_schema(config), indent=1, ensure_ascii=False) + "\n"


def json_schema(config: ExperimentConfig) -> Schema:
    """Returns the schema (draft-07) of the files that can set the settings of a config.

    A section that depends on a registry, such as `task` on `task.name`, has the settings of the
    entry that the file names, or else those of the entry that `config` names. The defaults are the
    values of `config`.
    """
    sections = _Sections()
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

    def __init__(self) -> None:
        self.definitions: dict[str, Schema] = {}

    def schema_of(self, config: Config, path: str) -> Schema:
        """Returns the schema of a section itself, without its description."""
        properties: Schema = {}
        for name, setting in config.garden_only.items():  # They have no meaning here.
            allowed = {"enum": [setting.default]} if setting.refused else {}
            properties[name] = {"description": f"no effect: {setting.reason}", **allowed}
        properties |= {name: {} for name in getattr(config, "unavailable", ())}
        properties |= {node.field.name: self._schema(node) for node in nodes(config, path)}
        return {"type": _SECTION, "additionalProperties": False, "properties": properties}

    def _section_schema(self, config: Config, path: str) -> Schema:
        """Returns a reference to a definition; the path is added to a name with two schemas."""
        schema = self.schema_of(config, path)
        key = name = type(config).__name__
        number = 1
        while self.definitions.get(key, schema) != schema:
            key, number = f"{name}.{path}.{number}", number + 1
        self.definitions[key] = schema
        return {"$ref": f"#/definitions/{key}"}

    def _schema(self, node: Node) -> Schema:
        meta = node.field.metadata
        text = remark(meta, node.path)
        schema: Schema = {"description": str(meta.get("help", "")) + (f" ({text})" if text else "")}
        official = isinstance(node.owner, ExperimentConfig) and node.owner.official
        if meta.get("variants") is not None and not official:
            return schema | self._variant_schema(node)
        if node.section is not None:
            section = self._section_schema(node.section, node.path)
            written = {"type": _SECTION, "allOf": [section]}
            if node.section.shorthand:
                written = {"anyOf": [{"type": "string"}, written]}
            return schema | written
        if node.item_class is not None:
            section = self._section_schema(node.item_class(), f"{node.path}[]")
            item = {"type": "object", "allOf": [section]}
            items = {"anyOf": [{"type": "string"}, item]} if node.item_class.shorthand else item
            return schema | {"type": "array", "items": items}
        # JSON cannot represent infinity.
        is_plain = not isinstance(node.value, float) or math.isfinite(node.value)
        default = {"default": plain_value(node.value)} if is_plain else {}
        return schema | _value_schema(node) | default

    def _variant_schema(self, node: Node) -> Schema:
        """Returns the schema of a section whose settings depend on its `name`."""
        base: Any = node.section
        chosen = getattr(base, "name", None)
        cases: list[Schema] = []
        names = []
        for entry in node.field.metadata["variants"].entries():
            cls = entry.load_config()
            is_base = chosen == entry.name and type(base) is cls
            config = base if is_base else cls(name=entry.name)
            named = {"properties": {"name": {"const": entry.name}}, "required": ["name"]}
            cases.append({"if": named, "then": self._section_schema(config, node.path)})
            names.append(entry.name)
        if chosen:
            unnamed = {"not": {"required": ["name"]}}
            cases.append({"if": unnamed, "then": self._section_schema(base, node.path)})
        return {"type": _SECTION, "properties": {"name": {"enum": names}}, "allOf": cases}


def _value_schema(node: Node) -> Schema:
    meta = node.field.metadata
    if meta.get("unsupported"):
        return {"enum": [plain_value(default_of(node.field))]}
    allowed: Iterable[object] = meta.get("allowed") or ()
    if isinstance(node.owner, OneOf) and node.field.name == "type":
        allowed = (*node.owner.choices(), None)
    elif meta.get("registry") is not None:
        allowed = [entry.name for entry in meta["registry"].entries()]
    values: list[Any] = [*allowed]
    if values and meta.get("lowercase"):
        # Regular expressions of JSON Schema have no flag to ignore the case.
        words = ("".join(f"[{c.lower()}{c.upper()}]" for c in word) for word in values)
        return {
            "anyOf": [{"enum": values}, {"type": "string", "pattern": f"^({'|'.join(words)})$"}]
        }
    return {"enum": values} if values else _type_schema(node.hint, meta)


def _type_schema(hint: object, meta: Metadata, *, is_item: bool = False) -> Schema:
    """Returns the schema of values of a type, within the limits in the metadata of a field.

    `is_item` is whether the values are items of a list. Limits do not apply to lists in it.
    """
    schema: Schema = {}
    types = list[str]()
    for option in options_of(hint):
        origin = typing.get_origin(option)
        if option is Any:
            return {}
        if option in _JSON_TYPES:
            types.append(_JSON_TYPES[option])
            if option in (int, float):
                schema |= {_LIMITS[key]: limit for key, limit in limits(option, meta).items()}
        elif option in (None, type(None)):
            types.append("null")
        elif isinstance(origin, type) and issubclass(origin, Sequence):
            types.append("array")
            below: Metadata = {"merged": True} if is_item else meta
            schema["items"] = _type_schema(typing.get_args(option)[0], below, is_item=True)
        else:
            types.append("object")
    if meta.get("word"):
        schema["pattern"] = f"^{meta['word']}$"
    return {"type": types if len(types) > 1 else types[0], **schema}
