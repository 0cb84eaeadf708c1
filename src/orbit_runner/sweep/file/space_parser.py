"""Reads the space of a sweep file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from orbit_runner.config.errors import Problem
from orbit_runner.config.parsing.tree import Leaf, Section
from orbit_runner.config.schema.base import is_finite_number
from orbit_runner.errors import nearest_name_hint, unknown_name_message
from orbit_runner.sweep.search.space import (
    Choice,
    Dimension,
    Integers,
    Space,
    Uniform,
    Values,
    find_cycle,
    sort_by_dependency,
)

# The distributions of a setting, with the other keys that each allows.
_KINDS = {
    "choice": (),
    "uniform": ("grid",),
    "log_uniform": ("grid",),
    "int": ("grid", "log", "step"),
}
_EXPECTED = (
    "a list of values, or one of: {choice: […]}, {uniform: [a, b]}, {log_uniform: [a, b]}, "
    "{int: [a, b]}"
)
_SECTIONS = ("task", "trainer", "runtime")
# The sweep itself sets these.
_RESERVED = {
    "runtime.seed": "use the key `seeds`",
}


class SpaceParser:
    """Parses the section `space`, and collects problems."""

    def __init__(self, section: Section, problems: list[Problem]) -> None:
        self._section, self._problems = section, problems
        self.lines: dict[str, int | None] = {}  # by the dotted path of the setting
        self.raw_values: dict[str, Any] = {}  # as written in the file

    def space(self) -> Space:
        """Returns the settings, each after those that it depends on; () after a problem."""
        known = len(self._problems)
        found: list[Dimension] = []
        for path, node in _entries(self._section):
            self.lines[path] = node.origin.line
            self.raw_values[path] = values_of(node)
            values = self._values(path, node)
            when = self._when(path, node)
            self._check_path(path, node, [one.path for one in found])
            if values is not None:
                found.append(Dimension(path, values, when))
        self._check_conditions(found)
        return () if len(self._problems) > known else sort_by_dependency(found)

    def _check_path(self, path: str, node: Leaf | Section, earlier: list[str]) -> None:
        if path.partition(".")[0] not in _SECTIONS or "." not in path:
            section = path.partition(".")[0]
            near = nearest_name_hint(section, _SECTIONS)
            message = f"expected a setting of {', '.join(_SECTIONS)}{near}"
            self._problem(path, message, node)
        if path in _RESERVED:
            self._problem(path, f"cannot vary; {_RESERVED[path]}", node)
        if path in earlier:
            self._problem(path, "is set twice", node)
        for other in earlier:
            if path.startswith(f"{other}.") or other.startswith(f"{path}."):
                self._problem(path, f"overlaps with {other}; let only one of them vary", node)

    def _values(self, path: str, node: Leaf | Section) -> Values | None:
        if isinstance(node, Leaf):
            if isinstance(node.value, (list, tuple)):
                return self._choice(path, [*node.value], node)
            self._problem(path, f"got {node.value!r}, expected {_EXPECTED}", node)
            return None
        kinds = [name for name in node.children if name in _KINDS]
        if len(kinds) != 1:
            others = [name for name in node.children if name != "when"]
            got = f"got {others}" if len(kinds) != 0 or not others else _unknown_kind(others[0])
            self._problem(path, f"{got}\nexpected {_EXPECTED}", node)
            return None
        kind = kinds[0]
        for name, child in node.children.items():
            if name not in (kind, "when", *_KINDS[kind]):
                message = unknown_name_message("key", name, [kind, "when", *_KINDS[kind]])
                self._problem(path, message, child)
        value = node.children[kind]
        given = _items(value)
        if given is None:
            self._problem(path, f"{kind}: expected a list", value)
            return None
        if kind == "choice":
            return self._choice(path, given, value)
        return self._range(path, kind, given, node)

    def _choice(self, path: str, values: list[Any], node: Leaf | Section) -> Choice | None:
        if not values:
            self._problem(path, "the choice is empty; list at least one value", node)
            return None
        repeated = [one for index, one in enumerate(values) if one in values[:index]]
        if repeated:
            self._problem(path, f"the choice lists {repeated[0]!r} twice", node)
        return Choice(tuple(values))

    def _range(self, path: str, kind: str, ends: list[Any], node: Section) -> Values | None:
        count = self._option(path, node, "grid", None)
        if len(ends) != 2 or not all(map(is_finite_number, ends)) or not ends[0] < ends[1]:
            message = f"{kind}: got {ends}, expected two numbers [a, b] with a < b"
            self._problem(path, message, node.children[kind])
            return None
        is_log = kind == "log_uniform" or self._flag(path, node, "log")
        if is_log and ends[0] <= 0:
            message = f"{kind}: got {ends}; the logarithm requires numbers above 0"
            self._problem(path, message, node.children[kind])
            return None
        if kind != "int":
            return Uniform(float(ends[0]), float(ends[1]), kind == "log_uniform", count)
        if not all(type(one) is int for one in ends):
            self._problem(path, f"int: got {ends}, expected integers", node.children[kind])
            return None
        step = self._option(path, node, "step", 1)
        if is_log and step != 1:
            self._problem(path, "step has no effect with log: true; remove one of them", node)
        return Integers(ends[0], ends[1], step or 1, is_log, count)

    def _option(self, path: str, node: Section, name: str, default: int | None) -> int | None:
        child = node.children.get(name)
        if child is None:
            return default
        value = child.value if isinstance(child, Leaf) else child
        if type(value) is not int or value < 1:
            self._problem(path, f"{name}: expected an integer of at least 1", child)
            return default
        return value

    def _flag(self, path: str, node: Section, name: str) -> bool:
        child = node.children.get(name)
        if child is not None and not (isinstance(child, Leaf) and type(child.value) is bool):
            self._problem(path, f"{name}: expected true or false", child)
        return isinstance(child, Leaf) and child.value is True

    def _when(self, path: str, node: Leaf | Section) -> dict[str, tuple[Any, ...]]:
        child = node.children.get("when") if isinstance(node, Section) else None
        if child is None:
            return {}
        if not isinstance(child, Section) or not child.children:
            message = "when: expected other settings of the space, such as {task.model.name: [cnn]}"
            self._problem(path, message, child)
            return {}
        found = {}
        for parent, leaf in _conditions(child):
            values = leaf.value if isinstance(leaf.value, (list, tuple)) else [leaf.value]
            found[parent] = tuple(values)
        return found

    def _check_conditions(self, found: list[Dimension]) -> None:
        by_path = {one.path: one for one in found}
        nodes = dict(_entries(self._section))
        for one in found:
            for parent, values in one.when.items():
                if parent not in by_path:
                    near = nearest_name_hint(parent, by_path)
                    message = f"when: {parent} is not a setting of the space{near}"
                    self._problem(one.path, message, nodes[one.path])
                    continue
                allowed = by_path[parent].values
                others = [] if not isinstance(allowed, Choice) else [
                    value for value in values if value not in allowed.values
                ]  # fmt: skip
                if others or not values:
                    known = ", ".join(str(value) for value in allowed.samples())
                    got = others[0] if others else "no value"
                    message = f"when: {parent} is never {got!r}\nallowed: {known}"
                    self._problem(one.path, message, nodes[one.path])
                elif not isinstance(allowed, Choice):
                    message = f"when: {parent} is a range; only a choice can be a condition"
                    self._problem(one.path, message, nodes[one.path])
        cycle = find_cycle({one.path: [*one.when] for one in found})
        if cycle:
            message = f"when: the conditions form a cycle: {' → '.join(cycle)}"
            self._problem(cycle[0], message, nodes[cycle[0]])

    def _problem(self, path: str, message: str, node: Leaf | Section) -> None:
        self._problems.append(Problem(f"space.{path}", message, node.origin))


def _entries(section: Section, above: str = "") -> Iterator[tuple[str, Leaf | Section]]:
    """Yields (dotted path, node) of each setting; its path may be dotted or nested."""
    for name, node in section.children.items():
        path = f"{above}{name}"
        # A misspelled distribution is recognized only below a dotted path.
        if isinstance(node, Leaf) or "." in name or {*node.children} & {*_KINDS, "when"}:
            yield path, node
        else:
            yield from _entries(node, f"{path}.")


def _conditions(section: Section, above: str = "") -> Iterator[tuple[str, Leaf]]:
    for name, node in section.children.items():
        if isinstance(node, Leaf):
            yield f"{above}{name}", node
        else:
            yield from _conditions(node, f"{above}{name}.")


def values_of(node: Leaf | Section) -> Any:
    """Returns the values of a tree as dicts and lists."""
    if isinstance(node, Section):
        return {name: values_of(child) for name, child in node.children.items()}
    return [*node.value] if isinstance(node.value, tuple) else node.value


def _items(node: Leaf | Section) -> list[Any] | None:
    """Returns the items of a list, or None if the value is not a list."""
    if not isinstance(node, Leaf) or not isinstance(node.value, (list, tuple)):
        return None
    return [*node.value]


def _unknown_kind(name: str) -> str:
    return unknown_name_message("distribution", name, [*_KINDS])
