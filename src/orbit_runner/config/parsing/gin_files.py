"""Reads gin files and bindings with gin's own parser, without TensorFlow.

A binding whose root is `task`, `trainer`, `runtime` or `experiment` sets a value in the config
tree. All other statements are kept as gin text, and bound to the `@gin.configurable` functions
when a run starts.
"""

from __future__ import annotations

import dataclasses
import io
import re
import tokenize
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from orbit_runner.config.errors import ConfigError, Origin, Problem, no_effect
from orbit_runner.config.parsing.search_path import find_file, read_text
from orbit_runner.config.parsing.tree import PythonTuple, Section, assignment, merge
from orbit_runner.errors import nearest_name_hint

if TYPE_CHECKING:
    from gin.config_parser import (
        BindingStatement,
        BlockDeclaration,
        ImportStatement,
        IncludeStatement,
    )

    # What gin's parser yields.
    Statement: TypeAlias = BindingStatement | BlockDeclaration | ImportStatement | IncludeStatement

_HINT = "write a setting with its section: trainer.train_steps = 1000"
ROOTS = ("task", "trainer", "runtime", "experiment")
# The value and the origin of each macro.
Macros: TypeAlias = dict[str, tuple[object, Origin]]


@dataclasses.dataclass(frozen=True)
class Macro:
    """A macro in a value: `%NAME`."""

    name: str

    def __repr__(self) -> str:
        return f"%{self.name}"


@dataclasses.dataclass(frozen=True)
class Reference:
    """A reference in a value: `@name` or `@name()`."""

    name: str
    evaluated: bool

    def __repr__(self) -> str:
        return f"@{self.name}{'()' if self.evaluated else ''}"


@dataclasses.dataclass(frozen=True)
class Binding:
    """A binding of the config tree, before macros are replaced."""

    path: tuple[str, ...]
    value: object
    origin: Origin


@dataclasses.dataclass
class GinLayer:
    """The content of one gin file or flag."""

    # Bindings of the config tree, in order.
    bindings: list[Binding] = dataclasses.field(default_factory=list)
    # The value and origin of each macro.
    macros: Macros = dataclasses.field(default_factory=dict)
    # The text and origin of all other statements.
    statements: dict[str, Origin] = dataclasses.field(default_factory=dict)


def load_gin(text: str, label: str, layer: int, path: Path | None = None) -> GinLayer:
    """Reads gin text and the files that it includes.

    `path` is None for a flag, whose origins have no line. Raises ConfigError if the text is not
    valid gin, or if an included file is missing or includes itself.
    """
    reader = _Reader(layer)
    reader.read(text, label, path, ())
    return reader.found


class Delegate:
    """Represents gin's references by their names, so that parsing does not import anything."""

    def configurable_reference(self, name: str, evaluate: bool) -> Reference:
        """Returns the representation of `@name`."""
        return Reference(name, evaluate)

    def macro(self, name: str) -> Macro:
        """Returns the representation of `%name`."""
        return Macro(name)


class _Reader:
    def __init__(self, layer: int) -> None:
        self.found = GinLayer()
        self._layer = layer

    def read(self, text: str, label: str, path: Path | None, within: tuple[Path, ...]) -> None:
        from gin import config_parser

        try:
            for statement in config_parser.ConfigParser(io.StringIO(text), Delegate()):
                line = statement.location.line_num if path else None
                self._add_statement(statement, Origin(label, line, self._layer), path, within)
        except (SyntaxError, tokenize.TokenError, TypeError, ValueError, RecursionError) as error:
            raise ConfigError([_syntax_problem(error, label, path, self._layer)]) from None

    def _add_statement(
        self, statement: Statement, origin: Origin, path: Path | None, within: tuple[Path, ...]
    ) -> None:
        kind = type(statement).__name__
        if kind == "IncludeStatement":
            self._include(statement.filename, origin, path, within)
        elif kind == "ImportStatement":
            self._keep_statement(statement.format(), origin)
        elif kind == "BindingStatement":
            self._add_binding(statement, origin)

    def _include(
        self, name: str, origin: Origin, path: Path | None, within: tuple[Path, ...]
    ) -> None:
        try:
            target = find_file(name, path.parent if path else None)
        except ConfigError as error:
            problems = (dataclasses.replace(problem, origin=origin) for problem in error.problems)
            raise ConfigError(problems) from None
        # Compare resolved paths, because `sub/../a.gin` is `a.gin`.
        around = (*within, path.resolve()) if path else within
        if target.resolve() in around:
            raise ConfigError.of("", f"{name!r} includes itself", origin, code="bad-reference")
        self.read(read_text(target, name), name, target, around)

    def _add_binding(self, statement: BindingStatement, origin: Origin) -> None:
        name = f"{statement.selector}.{statement.arg_name}"
        path = tuple(part for part in name.split(".") if part)
        # `NAME/macro.value = 1` is `NAME = 1`.
        if statement.selector == "macro" and statement.scope:
            self.found.macros[statement.scope] = (statement.value, origin)
        elif len(path) == 1 and (statement.scope or path[0] not in ROOTS):
            name = f"{statement.scope}/{path[0]}" if statement.scope else path[0]
            self.found.macros[name] = (statement.value, origin)
        elif path[0] in ROOTS and statement.scope:
            message = f"got scope {statement.scope!r}; config settings do not support scopes"
            raise ConfigError.of(".".join(path), message, origin, code="bad-syntax")
        elif path[0] in ROOTS:
            tree_path = path[1:] if path[0] == "experiment" else path
            self.found.bindings.append(Binding(tree_path, statement.value, origin))
        else:
            scope = f"{statement.scope}/" if statement.scope else ""
            self._keep_statement(f"{scope}{'.'.join(path)} = {gin_text(statement.value)}", origin)

    def _keep_statement(self, text: str, origin: Origin) -> None:
        self.found.statements.pop(text, None)  # Keep only the last of equal statements.
        self.found.statements[text] = origin


def _syntax_problem(error: Exception, label: str, path: Path | None, layer: int) -> Problem:
    place: Any = error.args[1] if len(error.args) > 1 else None
    if isinstance(error, tokenize.TokenError):  # Its argument is (line, column).
        place = (None, place[0], None, "")
    line = place[1] if place is not None and path else None
    written = str(place[3]).strip() if place is not None else ""
    reason = str(error.args[0])
    if word := re.search(r"Failed to parse token '(\w+)'", reason):
        reason = f"got {word[1]}, expected a value; put strings in quotes"
    message = f"invalid gin: {reason}" + (f"\nin: {written}" if written else "")
    return Problem("", message, Origin(label, line, layer), code="bad-syntax")


def tree_of(layer: GinLayer, macros: Macros) -> Section:
    """Returns the tree that the bindings of a layer set.

    `macros` has the last definition of each macro in all layers. Raises ConfigError if a macro is
    undefined or refers to itself, or if a value is a reference.
    """
    root = Section(Origin("gin"))
    problems = []
    for binding in layer.bindings:
        try:
            value = _expand(binding.value, macros)
            if not binding.path and not isinstance(value, dict):
                raise ValueError(f"got {value!r}, expected a section")
        except ValueError as error:
            problems.append(
                Problem(".".join(binding.path), str(error), binding.origin, code="bad-syntax")
            )
            continue
        merge(root, assignment(binding.path, value, _find_origin(binding, macros)))
    if problems:
        raise ConfigError(problems)
    return root


def _find_origin(binding: Binding, macros: Macros) -> Origin:
    """Returns the origin of a value, or the macro's origin if another layer defines it."""
    if not isinstance(binding.value, Macro):
        return binding.origin
    _, origin = macros[binding.value.name]
    if origin.layer == binding.origin.layer:
        return binding.origin
    return dataclasses.replace(origin, layer=binding.origin.layer)


def _expand(value: object, macros: Macros, within: tuple[str, ...] = ()) -> object:
    """Returns a value with its macros replaced; `within` are those that contain it."""
    if isinstance(value, Macro):
        if value.name in within:
            raise ValueError(f"macro %{value.name} refers to itself")
        if value.name not in macros:
            known = ", ".join(f"%{macro}" for macro in sorted(macros)) or "none"
            raise ValueError(f"macro %{value.name} is not defined\nallowed: {known}")
        return _expand(macros[value.name][0], macros, (*within, value.name))
    if isinstance(value, (list, tuple)):
        items = [_expand(item, macros, within) for item in value]
        return PythonTuple(items) if isinstance(value, tuple) else items
    if isinstance(value, dict):
        return {str(key): _expand(item, macros, within) for key, item in value.items()}
    if not isinstance(value, (str, int, float, type(None))):
        raise ValueError(f"got {value!r}; config settings accept only plain values")
    return value


def unused_macros(layers: Sequence[GinLayer], texts: Sequence[str]) -> list[Problem]:
    """Returns a problem for each unused macro on the command line.

    Usually, it is a setting that lacks its section. Macros in files are not reported, because a
    file may define macros that only some experiments use. `texts` are statements that may use
    macros, besides the bindings of `layers`.
    """
    values = [binding.value for layer in layers for binding in layer.bindings]
    values += [value for layer in layers for value, _ in layer.macros.values()]
    used = set(re.findall(r"%([\w./]+)", "\n".join([*map(repr, values), *texts])))
    macros = (item for layer in layers for item in layer.macros.items())
    unused = ((n, origin) for n, (_, origin) in macros if n not in used and origin.line is None)
    return [
        no_effect("", f"macro {n!r} is not used{nearest_name_hint(n, used)}\n{_HINT}", origin)
        for n, origin in unused
    ]


def macro_statements(macros: Macros) -> dict[str, Origin]:
    """Returns the macros as gin text, each with its origin."""
    return {f"{name} = {gin_text(value)}": origin for name, (value, origin) in macros.items()}


def gin_text(value: object) -> str:
    """Returns a value as gin text. Unlike `repr`, writes infinity so that gin can parse it."""
    if isinstance(value, dict):
        pairs = (f"{gin_text(key)}: {gin_text(item)}" for key, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, (list, tuple)):
        items = ", ".join(map(gin_text, value))
        if isinstance(value, list):
            return f"[{items}]"
        return f"({items},)" if len(value) == 1 else f"({items})"
    if isinstance(value, complex):  # Gin has no sums, so the real part is 0.
        return f"{gin_text(value.imag)}j"
    return repr(value).replace("inf", "1e999") if isinstance(value, float) else repr(value)
