"""Describes every setting from its declaration: type, default, limits and what it does."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from orbit_runner.config.parsing.conversion import describe_type
from orbit_runner.config.parsing.value_checks import LIMITS
from orbit_runner.config.schema.base import Config, OneOf, default_of
from orbit_runner.config.serialize import plain_value
from orbit_runner.config.walk import Node, nodes

if TYPE_CHECKING:
    from orbit_runner.config.schema.base import Metadata

Choices = Mapping[str, tuple[str, ...]]


@dataclasses.dataclass(frozen=True)
class Setting:
    """One setting, or one section.

    Attributes:
        path: The dotted path, such as `trainer.train_steps`. The items of a list are `path[]`.
        help: What it does, in one line.
        type: The type in words, such as `an integer or null`.
        default: The default value; None for sections.
        allowed: The allowed values, if they are listed, and the limits of numbers.
        remark: Why it has no effect or only one value, or which setting it is an alternative to.
        choices: The values of other settings for which it exists, such as
            `{"task.name": ("translation",)}`; empty if it always exists.
        is_section: Whether it contains other settings.
    """

    path: str
    help: str
    type: str
    default: object
    allowed: str
    remark: str
    choices: Choices
    is_section: bool


def describe_settings(config: Config) -> list[Setting]:
    """Returns all settings below a config, in the order in which they are declared.

    If a section depends on a registry, such as `task` on `task.name`, and its name is not set, its
    settings are those of all entries of the registry.
    """
    settings = list(_walk(config, "", {}))
    known: dict[str, set[str]] = {}
    for setting in settings:
        for path, names in setting.choices.items():
            known.setdefault(path, set()).update(names)
    merged: dict[tuple[object, ...], Setting] = {}
    for setting in settings:
        key = (setting.path, setting.help, setting.type, repr(setting.default), setting.allowed)
        choices = setting.choices
        if key in merged:
            choices = {
                path: tuple(dict.fromkeys((*names, *choices[path])))
                for path, names in merged[key].choices.items()
                if path in choices
            }
        merged[key] = dataclasses.replace(setting, choices=choices)
    return [
        dataclasses.replace(
            setting,
            choices={p: names for p, names in setting.choices.items() if set(names) != known[p]},
        )
        for setting in merged.values()
    ]


def _walk(config: Config, path: str, choices: Choices) -> Iterator[Setting]:
    """Yields the settings below a section, one for each class that declares a setting."""
    for node in nodes(config, path):
        yield _describe(node, choices)
        registry = node.field.metadata.get("variants")
        if registry is not None and not getattr(node.section, "name", None):
            for entry in registry.entries():
                named = {**choices, f"{node.path}.name": (entry.name,)}
                yield from _walk(entry.load_config()(name=entry.name), node.path, named)
        elif node.section is not None:
            yield from _walk(node.section, node.path, choices)
        elif node.item_class is not None:
            yield from _walk(node.item_class(), f"{node.path}[]", choices)


def _describe(node: Node, choices: Choices) -> Setting:
    meta = node.field.metadata
    is_section = node.section is not None
    return Setting(
        path=node.path,
        help=str(meta.get("help", "")),
        type="a section" if is_section else describe_type(node.hint),
        default=None if is_section else plain_value(default_of(node.field)),
        allowed=_describe_allowed(type(node.owner), node.field.name, meta),
        remark=remark(meta, node.path),
        choices=choices,
        is_section=is_section,
    )


def _describe_allowed(owner: type[Config], name: str, meta: Metadata) -> str:
    if issubclass(owner, OneOf) and name == "type":
        return ", ".join(owner.choices())
    if meta.get("variants") is not None:
        return ""
    parts = [", ".join(map(_format_value, meta.get("allowed", ()))), str(meta.get("word", ""))]
    limits = [(words, meta.get(key)) for key, (words, _) in sorted(LIMITS.items())]
    numbers = [f"{words} {_format_limit(limit)}" for words, limit in limits if limit is not None]
    parts.append(", ".join(numbers))
    return "; ".join(part for part in parts if part)


def _format_value(value: object) -> str:
    if value is None:
        return "null"
    return str(value) if value != "" else "''"


def _format_limit(limit: float) -> str:
    return f"{limit:,}" if isinstance(limit, int) else f"{limit:g}"


def remark(meta: Metadata, path: str) -> str:
    """Returns why a setting has no effect or only one value, or what it is an alternative to."""
    if meta.get("unsupported"):
        return f"only the default is accepted: {meta['unsupported']}"
    alternative = meta.get("exclusive_with")
    return f"alternative to {path.rpartition('.')[0]}.{alternative}" if alternative else ""
