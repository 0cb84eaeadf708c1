"""Reads overrides: `a.b=1,c[0]=2,c[1]=3`, YAML or JSON text, or a file."""

from __future__ import annotations

import re
from pathlib import Path

from orbit_runner.config.errors import ConfigError, Origin, wrong_type
from orbit_runner.config.parsing.search_path import find_file
from orbit_runner.config.parsing.tree import Section, merge, nested
from orbit_runner.config.parsing.yaml_files import load_file, load_text

_ASSIGNMENT = re.compile(r"\s*[A-Za-z_][\w.]*(\[\d+\])?\s*=")
_INDEXED = re.compile(r"\s*([A-Za-z_][\w.]*)\[(\d{1,6})\]\s*=")
_SUFFIXES = (".yaml", ".yml", ".json")


def load_override(text: str, label: str, layer: int) -> Section:
    """Returns the tree that one `--params_override` sets. Raises ConfigError if it is invalid.

    `text` is assignments separated by commas, YAML or JSON text, or the name of a file.
    """
    if _ASSIGNMENT.match(text):
        root = Section(Origin(label, None, layer))
        for part in _join_list_items(split_outside_brackets(text), label):
            merge(root, load_assignment(part, label, layer))
        return root
    if "\n" not in text and Path(text).suffix in _SUFFIXES:
        return load_file(find_file(text), text, layer)
    return load_text(text, label, layer, with_lines="\n" in text)


def _join_list_items(parts: list[str], label: str) -> list[str]:
    """Joins `a[0]=1` and `a[1]=2` to `a=[1,2]`. As in Model Garden, they set the whole list."""
    items: dict[str, dict[int, str]] = {}
    unindexed = []
    for part in parts:
        if match := _INDEXED.match(part):
            items.setdefault(match[1], {})[int(match[2])] = part[match.end() :].strip()
        else:
            unindexed.append(part)
    problems = []
    for name, given in items.items():
        if missing := sorted({*range(len(given))} - given.keys()):
            message = f"item {missing[0]} is missing; indexed items replace the whole list, so set "
            message += f"all of them, starting at {name}[0], or set the list: {name}=[…]"
            problems.append(wrong_type(name, message, Origin(label)))
    if problems:
        raise ConfigError(problems)
    lists = [
        f"{name}=[{', '.join(text for _, text in sorted(given.items()))}]"
        for name, given in items.items()
    ]
    return [*unindexed, *lists]


def load_assignment(text: str, label: str, layer: int) -> Section:
    """Returns the tree that `a.b.c=value` sets, with the value in YAML. May raise ConfigError."""
    name, equals, value = text.partition("=")
    path = tuple(name.strip().split("."))
    if not equals or not all(path):
        raise ConfigError.of(
            "",
            f"got {text.strip()!r}, expected path.to.setting=value",
            Origin(label),
            code="bad-syntax",
        )
    return load_setting(path, value, label, layer)


def load_setting(path: tuple[str, ...], text: str, label: str, layer: int) -> Section:
    """Returns a tree that sets a value, given in YAML, at a path from the root.

    Raises ConfigError if the value is not valid YAML.
    """
    value = load_text(f"value: {text}", label, layer, with_lines=False).children["value"]
    return nested(path, value, Origin(label, None, layer))


def split_outside_brackets(text: str) -> list[str]:
    """Splits a text at commas outside brackets and quotes. Drops empty parts."""
    parts = [""]
    depth = 0
    quote = ""
    for char in text:
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        depth += (not quote) * ((char in "[{(") - (char in "]})"))
        if char == "," and depth == 0 and not quote:
            parts.append("")
        else:
            parts[-1] += char
    return [part for part in parts if part.strip()]
