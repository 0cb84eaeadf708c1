"""Gin files and bindings, read with gin's own parser and without tensorflow.

A binding whose root is `task`, `trainer`, `runtime` or `experiment` sets the config tree. Every
other statement is kept as gin text, for the `@gin.configurable` functions that a run uses.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from orbit_runner.config.origins import Origin
from orbit_runner.config.problems import ConfigError, Problem
from orbit_runner.config.raw import Section, assignment, merge

ROOTS = ("task", "trainer", "runtime", "experiment")


@dataclasses.dataclass(frozen=True)
class Macro:
    """`%NAME` in a value."""

    name: str

    def __repr__(self) -> str:
        return f"%{self.name}"


@dataclasses.dataclass(frozen=True)
class Reference:
    """`@name` or `@name()` in a value."""

    name: str
    evaluated: bool

    def __repr__(self) -> str:
        return f"@{self.name}{'()' if self.evaluated else ''}"


@dataclasses.dataclass(frozen=True)
class Binding:
    """One binding of the config tree, its macros not yet put in."""

    path: tuple[str, ...]
    value: Any
    origin: Origin


@dataclasses.dataclass
class GinLayer:
    """What one gin file or flag says.

    Attributes:
        bindings: Those of the config tree, in order.
        macros: Name to (value, origin).
        statements: Text of everything else, imports first.
    """

    bindings: list[Binding] = dataclasses.field(default_factory=list)
    macros: dict[str, tuple[Any, Origin]] = dataclasses.field(default_factory=dict)
    statements: list[str] = dataclasses.field(default_factory=list)


def load_gin(
    text: str,
    label: str,
    layer: int,
    *,
    find: Callable[[str, Path | None], Path],
    path: Path | None = None,
) -> GinLayer:
    """Reads gin text and what it includes.

    Args:
        text: The text.
        label: What to call it in messages.
        layer: Its rank in the order of precedence.
        find: Finds an included file by its name and the folder of the file that includes it.
        path: The file the text is from; None for a flag, whose origins carry no line.

    Returns:
        What it says.

    Raises:
        ConfigError: The text is no gin, or an included file is not there or includes itself.
    """
    reader = _Reader(layer, find)
    reader.read(text, label, path, ())
    return reader.found


class _Delegate:
    """Stands in for gin's own objects, so that nothing has to be imported to parse."""

    def configurable_reference(self, name: str, evaluate: bool) -> Reference:
        return Reference(name, evaluate)

    def macro(self, name: str) -> Macro:
        return Macro(name)


class _Reader:
    def __init__(self, layer: int, find: Callable[[str, Path | None], Path]) -> None:
        self.found = GinLayer()
        self._layer, self._find = layer, find

    def read(self, text: str, label: str, path: Path | None, within: tuple[Path, ...]) -> None:
        from gin import config_parser

        if path in within:
            raise ConfigError([Problem("", "includes itself", Origin(label))])
        try:
            for statement in config_parser.ConfigParser(io.StringIO(text), _Delegate()):
                line = statement.location.line_num if path else None
                self._take(statement, Origin(label, line, self._layer), path, within)
        except SyntaxError as error:
            raise ConfigError([_syntax_problem(error, label, path, self._layer)]) from None

    def _take(self, said: Any, origin: Origin, path: Path | None, within: tuple[Any, ...]) -> None:
        kind = type(said).__name__
        if kind == "IncludeStatement":
            target = self._find(said.filename, path.parent if path else None)
            text = target.read_text(encoding="utf-8")
            self.read(text, said.filename, target, (*within, path))
        elif kind == "ImportStatement":
            self.found.statements.append(said.format())
        elif kind == "BindingStatement":
            self._bind(said, origin)

    def _bind(self, said: Any, origin: Origin) -> None:
        path = tuple(part for part in f"{said.selector}.{said.arg_name}".split(".") if part)
        if said.selector == "macro" or len(path) == 1:
            self.found.macros[said.scope or path[0]] = (said.value, origin)
        elif path[0] in ROOTS and not said.scope:
            tree_path = path[1:] if path[0] == "experiment" else path
            self.found.bindings.append(Binding(tree_path, said.value, origin))
        else:
            scope = f"{said.scope}/" if said.scope else ""
            self.found.statements.append(f"{scope}{'.'.join(path)} = {said.value!r}")


def _syntax_problem(error: SyntaxError, label: str, path: Path | None, layer: int) -> Problem:
    place = error.args[1] if len(error.args) > 1 else None
    line = place[1] if place is not None and path else None
    written = str(place[3]).strip() if place is not None else ""
    message = f"no valid gin: {error.args[0]}" + (f"\nin: {written}" if written else "")
    return Problem("", message, Origin(label, line, layer))


def tree_of(layer: GinLayer, macros: dict[str, tuple[Any, Origin]]) -> Section:
    """Makes the tree that a layer's bindings set.

    Args:
        layer: What a gin file or flag says.
        macros: All macros of all layers, the last definition of each.

    Returns:
        The tree.

    Raises:
        ConfigError: A macro is not defined or refers to itself, or a value is a reference.
    """
    root, problems = Section(Origin("gin")), []
    for binding in layer.bindings:
        try:
            value = _literal(binding.value, macros, ())
        except ValueError as error:
            problems.append(Problem(".".join(binding.path), str(error), binding.origin))
            continue
        merge(root, assignment(binding.path, value, binding.origin))
    if problems:
        raise ConfigError(problems)
    return root


def _literal(value: Any, macros: dict[str, tuple[Any, Origin]], within: tuple[str, ...]) -> Any:
    if isinstance(value, Macro):
        if value.name in within:
            raise ValueError(f"macro %{value.name} refers to itself")
        if value.name not in macros:
            known = ", ".join(f"%{name}" for name in sorted(macros)) or "none"
            raise ValueError(f"macro %{value.name} is not defined\nallowed: {known}")
        return _literal(macros[value.name][0], macros, (*within, value.name))
    if isinstance(value, Reference):
        raise ValueError(f"got {value!r}; the config tree takes plain values only")
    if isinstance(value, (list, tuple)):
        return [_literal(item, macros, within) for item in value]
    if isinstance(value, dict):
        return {key: _literal(item, macros, within) for key, item in value.items()}
    return value


def macro_statements(macros: dict[str, tuple[Any, Origin]]) -> list[str]:
    """Returns the macros as gin text."""
    return [f"{name} = {value!r}" for name, (value, _) in macros.items()]
