"""YAML and JSON files, read with line numbers and the scalar rules of YAML 1.2.

YAML 1.1, PyYAML's own, reads `off` as a boolean and `1e-3` as a string; both are everyday values of
an experiment, so scalars are resolved here by the core schema of YAML 1.2.2, section 10.3.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from orbit_runner.config.locate import read_text
from orbit_runner.config.origins import Origin
from orbit_runner.config.problems import ConfigError, Problem
from orbit_runner.config.raw import Leaf, Section

_NULL, _TRUE, _FALSE = {"", "~", "null"}, {"true"}, {"false"}
_INT = re.compile(r"[-+]?[0-9]+(_[0-9]+)*$")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(_[0-9]+)*(\.[0-9]*)?)([eE][-+]?[0-9]+)?$")
_RADIX = re.compile(r"0[xX][0-9a-fA-F]+$|0o[0-7]+$")
_MERGE = "tag:yaml.org,2002:merge"  # a plain `<<`; in quotes it is a name like any other
_SPECIAL = {".inf": float("inf"), "+.inf": float("inf"), "-.inf": -float("inf")}


def scalar(text: str) -> Any:
    """Reads an unquoted scalar.

    Args:
        text: What was written.

    Returns:
        None, a bool, an int, a float, or the text.
    """
    lower = text.lower()
    if lower in _NULL:
        return None
    if lower in _TRUE or lower in _FALSE:
        return lower in _TRUE
    if _INT.match(text):
        return int(text)
    if _FLOAT.match(text):
        return float(text)
    if _RADIX.match(text):
        return int(text, 0)
    if lower == ".nan":
        return float("nan")
    return _SPECIAL.get(lower, text)


def load_text(text: str, label: str, layer: int, *, with_lines: bool = True) -> Section:
    """Reads YAML or JSON text whose root is a mapping.

    Args:
        text: The text.
        label: What to call it in messages: the file's name or the flag.
        layer: Its rank in the order of precedence.
        with_lines: Whether origins carry the line.

    Returns:
        The tree; empty for an empty text.

    Raises:
        ConfigError: The text is no YAML, its root is no mapping, or it has a key twice.
    """
    reader = _Reader(label, layer, with_lines)
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise ConfigError([reader.syntax_problem(error)]) from None
    if root is None:
        return Section(Origin(label, None, layer))
    node = reader.read(root, "")
    if isinstance(node, Leaf) and node.value is None:  # a lone `---`
        return Section(node.origin)
    if not isinstance(node, Section):
        reader.problems.append(Problem("", "holds no `name: value` pairs", node.origin))
    if reader.problems:
        raise ConfigError(reader.problems)
    assert isinstance(node, Section)
    return node


def load_file(path: Path, label: str, layer: int) -> Section:
    """Reads a YAML or JSON file.

    Args:
        path: The file.
        label: What to call it in messages.
        layer: Its rank in the order of precedence.

    Returns:
        The tree.

    Raises:
        ConfigError: The file cannot be read, or `load_text` fails.
    """
    return load_text(read_text(path, label), label, layer)


class _Reader:
    """Turns PyYAML's nodes into sections and leaves, and gathers what is wrong with them."""

    def __init__(self, label: str, layer: int, with_lines: bool) -> None:
        self.problems: list[Problem] = []
        self._label, self._layer, self._with_lines = label, layer, with_lines
        self._open: set[int] = set()

    def _origin(self, mark: yaml.Mark | None) -> Origin:
        line = mark.line + 1 if mark is not None and self._with_lines else None
        return Origin(self._label, line, self._layer)

    def syntax_problem(self, error: yaml.YAMLError) -> Problem:
        mark = getattr(error, "problem_mark", None)
        reason = getattr(error, "problem", None) or str(error)
        context = getattr(error, "context", None)
        message = f"no valid YAML: {reason}" + (f" ({context})" if context else "")
        return Problem("", message, self._origin(mark))

    def read(self, node: yaml.Node, path: str) -> Leaf | Section:
        origin = self._origin(node.start_mark)
        if isinstance(node, yaml.MappingNode):
            return self._section(node, path, origin)
        return Leaf(self._value(node, path), origin)

    def _section(self, node: yaml.MappingNode, path: str, origin: Origin) -> Section:
        section = Section(origin)
        if not self._enter(node, path, origin):
            return section
        self._fill(section, node, path)
        self._open.remove(id(node))
        return section

    def _enter(self, node: yaml.Node, path: str, origin: Origin) -> bool:
        if id(node) in self._open:
            self.problems.append(Problem(path, "an alias stands inside what it refers to", origin))
            return False
        self._open.add(id(node))
        return True

    def _fill(self, section: Section, node: yaml.MappingNode, path: str) -> None:
        seen: dict[Hashable, Origin] = {}
        for key_node, value_node in node.value:
            key = str(getattr(key_node, "value", ""))
            if key_node.tag == _MERGE:
                self._merge_key(section, value_node, path)
                continue
            below = f"{path}.{key}" if path else key
            place = self._origin(key_node.start_mark)
            if key in seen:
                self.problems.append(
                    Problem(below, f"is set twice, first at {seen[key]}; keep one", place)
                )
            seen[key] = place
            child = self.read(value_node, below)
            child.origin = place
            section.children[key] = child

    def _merge_key(self, section: Section, node: yaml.Node, path: str) -> None:
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        for source in sources:
            read = self.read(source, path)
            if not isinstance(read, Section):
                self.problems.append(Problem(path, "`<<` takes a section", read.origin))
                continue
            for key, child in read.children.items():
                section.children.setdefault(key, child)

    def _value(self, node: Any, path: str) -> Any:
        if isinstance(node, yaml.SequenceNode):
            if not self._enter(node, path, self._origin(node.start_mark)):
                return []
            items = [self._value(item, f"{path}[{i}]") for i, item in enumerate(node.value)]
            self._open.remove(id(node))
            return items
        if isinstance(node, yaml.MappingNode):
            section = self._section(node, path, self._origin(node.start_mark))
            return {key: _unwrapped(child) for key, child in section.children.items()}
        quoted = node.style is not None or (node.tag.endswith(":str") and _tagged(node))
        return _whole_characters(node.value) if quoted else scalar(node.value)


def _tagged(node: yaml.Node) -> bool:
    # PyYAML resolves `!!str 5` and a plain `text` to the same tag; only the text tells them apart.
    start, end = node.start_mark, node.end_mark
    written = start.buffer[start.pointer : end.pointer] if start.buffer else ""
    return bool(re.match(r"(&\S+\s+)?!", written))


def _whole_characters(text: str) -> str:
    # JSON writes a character beyond U+FFFF as two escapes, which PyYAML leaves as two halves.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _unwrapped(node: Leaf | Section) -> Any:
    if isinstance(node, Leaf):
        return node.value
    return {key: _unwrapped(child) for key, child in node.children.items()}
