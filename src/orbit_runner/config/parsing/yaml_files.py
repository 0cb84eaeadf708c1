"""Reads YAML and JSON files with line numbers and the scalar rules of YAML 1.2.

PyYAML implements YAML 1.1, which reads `off` as a boolean and `1e-3` as a string. Both are common
in experiments, so scalars are resolved with the core schema of YAML 1.2.2, section 10.3.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from orbit_runner.config.errors import ConfigError, Origin, Problem
from orbit_runner.config.parsing.search_path import read_text
from orbit_runner.config.parsing.tree import Leaf, PythonTuple, Section, plain_value

_NULL, _TRUE, _FALSE = {"", "~", "null"}, {"true"}, {"false"}
_INT = re.compile(r"[-+]?[0-9]+(_[0-9]+)*$")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(_[0-9]+)*(\.[0-9]*)?)([eE][-+]?[0-9]+)?$")
_RADIX = re.compile(r"0[xX][0-9a-fA-F]+$|0o[0-7]+$")
_MERGE = "tag:yaml.org,2002:merge"  # An unquoted `<<`. In quotes, it is an ordinary key.
# Octal in YAML 1.1, which Model Garden reads, and decimal in YAML 1.2.
_AMBIGUOUS = re.compile(r"[-+]?0[0-9_]*[1-9][0-9_]*$")
_TAGS = "tag:yaml.org,2002:"
# Tags that PyYAML writes for Python values. Model Garden's files contain them.
_PYTHON_TAGS = {
    f"{_TAGS}python/{name}": _TAGS + kind
    for kind, names in {
        "seq": ("list",),
        "map": ("dict",),
        "str": ("str", "unicode"),
        "int": ("int", "long"),
        "float": ("float",),
        "bool": ("bool",),
        "null": ("none",),
    }.items()
    for name in names
}
_TUPLE = f"{_TAGS}python/tuple"
_SCALAR_TAGS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (float, int),
    "bool": (bool,),
    "null": (type(None),),
}
# In characters. Longer numbers are strings, because Python limits conversions in both directions.
_LONGEST_NUMBER = 3500
_SPECIAL = {".inf": float("inf"), "+.inf": float("inf"), "-.inf": -float("inf")}


def parse_scalar(text: str) -> str | float | bool | None:
    """Returns an unquoted scalar as None, a bool, an int, a float, or a string."""
    lower = text.lower()
    if lower in _NULL:
        return None
    if lower in _TRUE or lower in _FALSE:
        return lower in _TRUE
    if len(text) > _LONGEST_NUMBER:
        return text
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
    """Returns the tree of YAML or JSON text, which is empty for an empty text.

    `label` is the file or flag for messages. `with_lines` is whether origins have line numbers.
    Raises ConfigError if the text is not valid YAML, its root is not a mapping, or it has a
    duplicate key.
    """
    reader = _Reader(label, layer, with_lines)
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        reader.tags = loader.tags
        node = Leaf(None, Origin(label, None, layer)) if root is None else reader.read(root, "")
    except yaml.reader.ReaderError as error:
        raise ConfigError([reader.character_problem(error, text)]) from None
    except yaml.YAMLError as error:
        raise ConfigError([reader.syntax_problem(error)]) from None
    except RecursionError:
        message = "sections and lists are nested too deeply"
        raise ConfigError.of("", message, Origin(label, None, layer), code="bad-syntax") from None
    if isinstance(node, Leaf) and node.value is None:  # No text, or only `---`.
        return Section(node.origin)
    if not isinstance(node, Section):
        reader.problems.append(
            Problem("", "contains no `name: value` pairs", node.origin, code="bad-syntax")
        )
    if reader.problems:
        raise ConfigError(reader.problems)
    assert isinstance(node, Section)
    return node


def parse_value(text: str, label: str) -> object:
    """Returns the value of a text in YAML, of one line. Raises ConfigError if it is invalid.

    `label` is the file or flag for messages.
    """
    return plain_value(load_text(f"value: {text}", label, 0, with_lines=False).children["value"])


def load_file(path: Path, label: str, layer: int) -> Section:
    """Returns the tree of a YAML or JSON file. Raises ConfigError if it cannot be read."""
    return load_text(read_text(path, label), label, layer)


class _Loader(yaml.SafeLoader):
    """Composes nodes, and remembers their explicit tags."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        # The tags of explicitly tagged nodes, by the id of the node.
        self.tags: dict[int, str] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        node = super().compose_node(parent, index)
        # An alias has no tag of its own. A lone `!` makes an unquoted scalar a string.
        tag = getattr(event, "tag", None)
        if tag is not None and not isinstance(event, yaml.AliasEvent):
            self.tags[id(node)] = _TAGS + "str" if tag == "!" else _PYTHON_TAGS.get(tag, tag)
        return node


class _Reader:
    """Converts PyYAML's nodes to sections and leaves, and collects problems."""

    def __init__(self, label: str, layer: int, with_lines: bool) -> None:
        self.problems: list[Problem] = []
        self._label = label
        self._layer = layer
        self._with_lines = with_lines
        self.tags: dict[int, str] = {}
        self._open: set[int] = set()

    def _add(self, path: str, message: str, origin: Origin) -> None:
        self.problems.append(Problem(path, message, origin, code="bad-syntax"))

    def _origin(self, mark: yaml.Mark | None) -> Origin:
        line = mark.line + 1 if mark is not None and self._with_lines else None
        return Origin(self._label, line, self._layer)

    def syntax_problem(self, error: yaml.YAMLError) -> Problem:
        mark = getattr(error, "problem_mark", None)
        reason = getattr(error, "problem", None) or str(error)
        context = getattr(error, "context", None)
        message = f"invalid YAML: {reason}" + (f" ({context})" if context else "")
        return Problem("", message, self._origin(mark), code="bad-syntax")

    def character_problem(self, error: yaml.reader.ReaderError, text: str) -> Problem:
        line = text.count("\n", 0, error.position) + 1 if self._with_lines else None
        code = error.character if isinstance(error.character, int) else ord(error.character)
        message = f"invalid YAML: the character U+{code:04X} is not allowed"
        return Problem("", message, Origin(self._label, line, self._layer), code="bad-syntax")

    def read(self, node: yaml.Node, path: str) -> Leaf | Section:
        origin = self._origin(node.start_mark)
        if isinstance(node, yaml.MappingNode):
            self._check_tag(node, path)
            return self._read_section(node, path, origin)
        return Leaf(self._read_value(node, path), origin)

    def _read_section(self, node: yaml.MappingNode, path: str, origin: Origin) -> Section:
        section = Section(origin)
        if not self._enter(node, path, origin):
            return section
        self._read_children(section, node, path)
        self._open.remove(id(node))
        return section

    def _check_tag(self, node: yaml.Node, path: str) -> None:
        kind = "map" if isinstance(node, yaml.MappingNode) else "seq"
        tag = self.tags.get(id(node), _TAGS + kind)
        is_tuple = tag == _TUPLE and kind == "seq"
        if tag != _TAGS + kind and not is_tuple:
            self._add_tag_problem(node, tag, path, f"!!{kind}, or no tag")

    def _add_tag_problem(self, node: yaml.Node, tag: str, path: str, allowed: str) -> None:
        shown = tag.replace(_TAGS, "!!")
        message = f"tag {shown!r:.80} is not supported here\nallowed: {allowed}"
        self._add(path, message, self._origin(node.start_mark))

    def _enter(self, node: yaml.Node, path: str, origin: Origin) -> bool:
        if id(node) in self._open:
            self._add(path, "an alias refers to a node that contains it", origin)
            return False
        self._open.add(id(node))
        return True

    def _read_children(self, section: Section, node: yaml.MappingNode, path: str) -> None:
        seen: dict[Hashable, Origin] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                self._merge_key(section, value_node, path)
                continue
            place = self._origin(key_node.start_mark)
            if not isinstance(key_node, yaml.ScalarNode) or id(key_node) in self.tags:
                self._add(path, "a name must be a string without a tag", place)
                continue
            key = str(key_node.value)
            below = f"{path}.{key}" if path else key
            if key in seen:
                self.problems.append(
                    Problem(
                        below,
                        f"is set twice, first at {seen[key]}; keep one",
                        place,
                        code="set-twice",
                    )
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
                self._add(path, "`<<` requires a section", read.origin)
                continue
            for key, child in read.children.items():
                section.children.setdefault(key, child)

    def _read_value(self, node: Any, path: str) -> object:
        if isinstance(node, yaml.SequenceNode):
            self._check_tag(node, path)
            if not self._enter(node, path, self._origin(node.start_mark)):
                return []
            items = [
                self._read_value(item, f"{path}[{index}]") for index, item in enumerate(node.value)
            ]
            self._open.remove(id(node))
            return PythonTuple(items) if self.tags.get(id(node)) == _TUPLE else items
        if isinstance(node, yaml.MappingNode):
            self._check_tag(node, path)
            section = self._read_section(node, path, self._origin(node.start_mark))
            return {key: plain_value(child) for key, child in section.children.items()}
        if id(node) in self.tags:
            return self._read_tagged(node, path, self.tags[id(node)])
        if node.style is not None:
            return _combine_surrogates(node.value)
        if len(node.value) <= _LONGEST_NUMBER and _AMBIGUOUS.match(node.value):
            self._add_ambiguity_problem(node, path)
        return parse_scalar(node.value)

    def _read_tagged(self, node: yaml.ScalarNode, path: str, tag: str) -> str | float | bool | None:
        """Reads a scalar with a tag of the core schema, which makes quotes irrelevant."""
        kind = tag.removeprefix(_TAGS)
        if kind == "str":
            return _combine_surrogates(node.value)
        value = parse_scalar(node.value)
        if type(value) not in _SCALAR_TAGS.get(kind, ()):
            tags = ", ".join(f"!!{name}" for name in _SCALAR_TAGS)
            if kind in _SCALAR_TAGS:
                message = f"got {node.value!r:.200}, which does not match its tag, !!{kind}"
                self._add(path, message, self._origin(node.start_mark))
            else:
                self._add_tag_problem(node, tag, path, f"{tags}, or no tag")
        # A number that is too large for a float is infinite, as it is without a tag.
        return float(str(value)) if kind == "float" and isinstance(value, int) else value

    def _add_ambiguity_problem(self, node: yaml.ScalarNode, path: str) -> None:
        plain = int(node.value)
        message = (
            f"got {node.value}, which YAML 1.1 and YAML 1.2 read as different numbers\n"
            f"write {plain}, or 0o… for an octal number, or put a string in quotes"
        )
        self._add(path, message, self._origin(node.start_mark))


def _combine_surrogates(text: str) -> str:
    # JSON escapes a character beyond U+FFFF as a surrogate pair, which PyYAML does not combine.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
