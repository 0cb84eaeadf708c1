"""The settings of a config as YAML and by dotted path, and the differences between two configs.

The YAML loads to the same tree under YAML 1.2 and YAML 1.1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import yaml

from orbit_runner.config.errors import DEFAULT, Origin
from orbit_runner.config.parsing.tree import PythonTuple
from orbit_runner.config.parsing.yaml_files import parse_scalar
from orbit_runner.config.schema.base import Config
from orbit_runner.config.walk import walk
from orbit_runner.utils.streams import line_text

if TYPE_CHECKING:
    from orbit_runner.utils.types import JsonObject

_WIDTH = float("inf")
_MISSING = object()
# The text of a setting that a config does not have. A string `-` is written in quotes.
ABSENT = "-"


class _Dumper(yaml.SafeDumper):
    """Quotes strings that YAML 1.1 or YAML 1.2 would read as another type."""


def _represent_string(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "'" if not isinstance(parse_scalar(value), str) else None
    if not value.isprintable():
        style = '"'  # the only style that keeps a line break on one line
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _represent_string)
_Dumper.add_representer(
    PythonTuple,
    lambda dumper, value: dumper.represent_sequence("tag:yaml.org,2002:python/tuple", list(value)),
)


def inline_yaml(value: object) -> str:
    """Returns a value as YAML on one line, without a newline."""
    return _dump_inline(plain_value(value))


def _dump_inline(value: object) -> str:
    text = yaml.dump(
        value, Dumper=_Dumper, default_flow_style=True, width=_WIDTH, sort_keys=False,
        allow_unicode=True,
    )  # fmt: skip
    return text.removesuffix("\n").removesuffix("\n...")


def short_setting_names(paths: Iterable[str]) -> dict[str, str]:
    """Returns the last parts of dotted paths, as many as are needed to tell them apart."""
    parts = {path: path.split(".") for path in paths}
    names = {}
    for path, words in parts.items():
        for count in range(1, len(words) + 1):
            name = ".".join(words[-count:])
            other_paths = (other_path for other_path in parts if other_path != path)
            if not any(f".{other_path}".endswith(f".{name}") for other_path in other_paths):
                break
        names[path] = name
    return names


def plain_value(value: object, *, keeps_tuples: bool = False) -> Any:
    """Returns a setting or a section as lists, dicts and scalars.

    With `keeps_tuples`, lists that a file marks as tuples stay `PythonTuple`.
    """
    if isinstance(value, Config):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: plain_value(item, keeps_tuples=keeps_tuples) for key, item in value.items()}
    if not isinstance(value, (list, tuple)):
        return value
    items = [plain_value(item, keeps_tuples=keeps_tuples) for item in value]
    return PythonTuple(items) if keeps_tuples and isinstance(value, PythonTuple) else items


def to_yaml(config: Config, origins: Mapping[str, Origin] | None = None) -> str:
    """Returns a config as YAML. If `origins` is given, the origin of each value is a comment."""
    lines: list[tuple[str, str]] = []
    keeps_tuples = bool(getattr(config, "is_official", False))  # Other tasks take any list.
    for node in walk(config):
        value_text = origin = ""
        if not isinstance(node.value, Config):
            value_text = f" {_dump_inline(plain_value(node.value, keeps_tuples=keeps_tuples))}"
            origin = str((origins or {}).get(node.path, DEFAULT))
        lines.append((f"{'  ' * node.path.count('.')}{node.field.name}:{value_text}", origin))
    if origins is None:
        return "".join(f"{text}\n" for text, _ in lines)
    width = min(60, max(len(text) for text, _ in lines))
    return "".join(
        f"{text:<{width}}  # {line_text(o)}\n" if o else f"{text}\n" for text, o in lines
    )


def flat_settings(config: Config) -> JsonObject:
    """Returns all settings by dotted path. Lists are lists, and null sections are None."""
    settings = (node for node in walk(config) if not isinstance(node.value, Config))
    return {setting.path: plain_value(setting.value) for setting in settings}


@dataclasses.dataclass(frozen=True)
class Difference:
    """A setting with different values. `-` means that the config does not have the setting."""

    path: str
    left: str
    right: str


def differences(left: Config, right: Config) -> list[Difference]:
    """Returns the settings that differ, those of `left` first, in the order of declaration."""
    a, b = flat_settings(left), flat_settings(right)
    paths = [*a, *(path for path in b if path not in a)]
    return [
        Difference(path, _format(a.get(path, _MISSING)), _format(b.get(path, _MISSING)))
        for path in paths
        if a.get(path, _MISSING) != b.get(path, _MISSING)
    ]


def _format(value: object) -> str:
    return ABSENT if value is _MISSING else inline_yaml(value)
