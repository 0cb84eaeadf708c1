"""Resolves references between settings: `${trainer.train_steps}` is the value of that setting.

A reference takes the value that the setting has in the end, after all layers. Therefore the config
is built in rounds. Each round builds it without the settings whose references have no value yet,
and then determines the values of the references to settings that are complete.

Files may be untrusted, so the length of chains and the size of the results are limited.
"""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orbit_runner.config.errors import DEFAULT, Origin, Problem
from orbit_runner.config.parsing.conversion import format_value, is_config, options_of
from orbit_runner.config.parsing.tree import MAX_DEPTH, Leaf, Section, sequence_like
from orbit_runner.config.schema.base import Config, OneOf
from orbit_runner.config.serialize import LITERAL, flat_settings, inline_yaml, plain_value
from orbit_runner.errors import nearest_name_hint, shorten, unknown_name_message

MAX_CHAIN = 16
_MAX_VALUES = 20_000
_MAX_CHARACTERS = 2**20
_MAX_NAMED = 3  # references in the text of one origin
_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_ITEM = re.compile(r"[\w.]+\[\d+\]")
_HINT = "write $${ for a literal ${"


@dataclasses.dataclass(frozen=True)
class Reference:
    """A reference in a text."""

    path: str

    def __str__(self) -> str:
        return f"${{{self.path}}}"


def parse_text(text: str) -> list[str | Reference]:
    """Returns the references in a text and the text between them, with `$${` as `${`.

    Raises ValueError if the text contains an invalid reference.
    """
    parts: list[str | Reference] = [""]
    position = 0
    while (start := text.find("${", position)) >= 0:
        if start > position and text[start - 1] == "$":
            parts += [text[position : start - 1] + "${"]
            position = start + 2
            continue
        end = text.find("}", start)
        parts += [text[position:start], Reference(_parse_path(text, start, end))]
        position = end + 1
    parts.append(text[position:])
    return [part for part in parts if part != ""]


def _parse_path(text: str, start: int, end: int) -> str:
    """Returns the path of the reference between two positions, or raises ValueError."""
    if end < 0:
        raise ValueError(f"a reference has no closing brace: {shorten(text[start:], 40)}\n{_HINT}")
    path = text[start + 2 : end]
    if path.count(".") >= MAX_DEPTH:
        raise ValueError(f"a name has at most {MAX_DEPTH} parts, got {path.count('.') + 1}")
    if _PATH.fullmatch(path):
        return path
    shown = shorten("${" + path + "}", 80)
    if "${" in path:
        raise ValueError(f"a reference cannot contain another one: {shown}\n{_HINT}")
    if _ITEM.match(path):
        raise ValueError(f"{shown} refers to an item of a list; refer to the whole list")
    raise ValueError(f"got {shown}, expected a dotted path: ${{trainer.train_steps}}\n{_HINT}")


def has_reference_notation(value: Any) -> bool:
    """Returns whether a value contains `${`, in a reference or as `$${`."""
    if isinstance(value, str):
        return "${" in value
    items = value.values() if isinstance(value, Mapping) else value
    return isinstance(value, (Mapping, list, tuple)) and any(map(has_reference_notation, items))


class References:
    """The references of a config, and their values as far as they are known."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self._values: dict[str, Leaf] = {}
        # Settings whose references have no value because of an error.
        self._failed: set[str] = set()
        # Settings that the current build has left out.
        self._waiting: dict[str, Leaf] = {}
        self._rounds = 0
        self._expansion = _Expansion()

    def substitute(self, path: str, node: Leaf | Section) -> Leaf | Section:
        """Returns a setting with the values of its references; unchanged if they are not known."""
        return self._values.get(path, node)

    def must_wait(self, path: str, node: Leaf | Section) -> bool:
        """Returns whether the values of a setting's references are not known."""
        # Only files and flags, whose layers begin at 1, use the notation.
        if not isinstance(node, Leaf) or node.origin.layer < 1 or path in LITERAL:
            return False
        # The items of a list have been resolved together with the list.
        if path in self._values or "[" in path or not has_reference_notation(node.value):
            return False
        if path not in self._failed:
            self._waiting[path] = node
        return True

    def resolve_next(
        self, config: Config, origins: Mapping[str, Origin], problems: Sequence[Problem]
    ) -> bool:
        """Determines further values. Returns whether the config must be built again.

        `config`, `origins` and `problems` are the result of a build without the settings for which
        `must_wait` returned True.
        """
        waiting, self._waiting = self._waiting, {}
        flawed = [problem.path for problem in (*problems, *self.problems)]
        settings = _Settings(config, origins, waiting, flawed)
        blockers = {path: settings.blockers(leaf.value) for path, leaf in waiting.items()}
        ready = [path for path in waiting if not blockers[path]]
        self._rounds += 1
        for path, leaf in waiting.items():
            if not ready:
                self._fail(path, _cycle_message(path, blockers), leaf.origin)
            elif self._rounds > MAX_CHAIN:
                self._fail(path, f"a chain has more than {MAX_CHAIN} references", leaf.origin)
            elif path in ready:
                self._resolve(path, leaf, settings)
        return bool(waiting)

    def _resolve(self, path: str, leaf: Leaf, settings: _Settings) -> None:
        try:
            # The depth in `config.yaml`, which must not be too deep to be loaded again.
            depth = path.count(".") + 2
            value = self._expansion.expand(leaf.value, path, settings, depth)
        except _InvalidReference as error:
            self._fail(error.path, str(error), leaf.origin)
            self._failed.add(path)
            return
        note = _origin_note(leaf.value, settings.origins)
        self._values[path] = Leaf(value, dataclasses.replace(leaf.origin, note=note))

    def _fail(self, path: str, message: str, origin: Origin) -> None:
        self._failed.add(path)
        self.problems.append(Problem(path, message, origin, code="bad-reference"))


class _InvalidReference(ValueError):
    """A reference without a value."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(reason)
        self.path = path  # Of the setting or of the item of a list that contains it.


class _Expansion:
    """Replaces references by values. Limits the size of all results together."""

    def __init__(self) -> None:
        self._values = 0
        self._characters = 0

    def expand(self, value: object, path: str, settings: _Settings, depth: int) -> object:
        """Returns a value with the values of its references. Raises _InvalidReference.

        `depth` is the number of levels from the root to the value.
        """
        if isinstance(value, Mapping):
            return {
                key: self.expand(item, f"{path}.{key}", settings, depth + 1)
                for key, item in value.items()
            }
        if isinstance(value, (list, tuple)):
            items = (
                self.expand(item, f"{path}[{index}]", settings, depth + 1)
                for index, item in enumerate(value)
            )
            return sequence_like(value, items)
        if not isinstance(value, str):
            return value
        try:
            return self._expand_text(value, settings, depth)
        except ValueError as error:
            raise _InvalidReference(path, str(error)) from None

    def _expand_text(self, text: str, settings: _Settings, depth: int) -> object:
        parts = parse_text(text)
        if len(parts) == 1 and isinstance(parts[0], Reference):
            value = settings.value(parts[0].path)
            self._count_size(value, depth)
            return value
        pieces = []
        for part in parts:
            pieces.append(part if isinstance(part, str) else _format_for_text(part, settings))
            self._count_size(pieces[-1], depth)
        return "".join(pieces)

    def _count_size(self, value: Any, depth: int) -> None:
        self._values += 1
        self._characters += len(value) if isinstance(value, str) else 0
        for limit, got, what in (
            (_MAX_VALUES, self._values, "values"),
            (_MAX_CHARACTERS, self._characters, "characters"),
            (MAX_DEPTH, depth, "levels"),
        ):
            if got > limit:
                raise ValueError(f"the references expand to more than {limit:,} {what}")
        items = value.values() if isinstance(value, Mapping) else value
        for item in items if isinstance(value, (Mapping, list)) else ():
            self._count_size(item, depth + 1)


def _format_for_text(reference: Reference, settings: _Settings) -> str:
    """Returns the value of a reference as a part of a text."""
    value = settings.value(reference.path)
    if isinstance(value, str):
        return value
    if isinstance(value, (bool, int, float)):
        return inline_yaml(value)
    raise ValueError(
        f"{reference} is {'a list' if isinstance(value, list) else format_value(value)}; "
        "only strings, numbers and booleans can be inserted into a text"
    )


@dataclasses.dataclass(frozen=True)
class _Settings:
    """The settings that references can name, after a build without those that wait."""

    config: Config
    origins: Mapping[str, Origin]
    waiting: Mapping[str, Leaf]
    flawed: Sequence[str]  # The paths of problems.
    # The values that have been looked up. A list may refer to the same setting many times.
    known: dict[str, object] = dataclasses.field(default_factory=dict)

    def value(self, path: str) -> object:
        """Returns the value of a setting. Raises ValueError if a reference to it is invalid."""
        if path not in self.known:
            self.known[path] = self._read_value(path)
        return self.known[path]

    def _read_value(self, path: str) -> object:
        for flaw in self.flawed:
            if _invalidates(flaw, path):
                raise ValueError(f"{Reference(path)} has no value, because {flaw} is invalid")
        section: Any = self.config
        *above, name = path.split(".")
        for index, part in enumerate(above):
            self._check_exists(section, part, path)
            section = getattr(section, part)
            if not isinstance(section, Config):
                what = "null" if section is None else "a setting, not a section"
                raise ValueError(f"{Reference(path)}: {'.'.join(above[: index + 1])} is {what}")
        self._check_exists(section, name, path)
        value = getattr(section, name)
        options = options_of(typing.get_type_hints(type(section))[name])
        if isinstance(value, Config) or (value is None and any(map(is_config, options))):
            below = [
                setting for setting in flat_settings(self.config) if setting.startswith(f"{path}.")
            ]
            hint = f", such as {Reference(min(below, key=_depth))}" if below else ""
            raise ValueError(f"{Reference(path)} is a section; refer to a setting{hint}")
        return plain_value(value)

    def blockers(self, value: object) -> list[str]:
        """Returns the waiting settings on which the values of the references depend."""
        paths = dict.fromkeys(_referenced_paths(value))
        dependencies = [
            dependency for path in paths for dependency in self._determining_settings(path)
        ]
        return [path for path in dict.fromkeys(dependencies) if path in self.waiting]

    def _determining_settings(self, path: str) -> Iterator[str]:
        """Yields the settings that can change a setting: itself, types of blocks, alternatives."""
        section: object = self.config
        parts = path.split(".")
        for index, name in enumerate(parts):
            prefix = ".".join(parts[:index])
            yield ".".join(parts[: index + 1])
            if isinstance(section, OneOf):
                yield f"{prefix}.type"
            if index == len(parts) - 1 and isinstance(section, Config):
                yield from self._alternatives(section, prefix, name)
            section = getattr(section, name, None)

    def _alternatives(self, section: Config, prefix: str, name: str) -> Iterator[str]:
        layer = self.origins.get(f"{prefix}.{name}", DEFAULT).layer
        for field in dataclasses.fields(section):
            alternative = f"{prefix}.{field.name}"
            if field.metadata.get("exclusive_with") != name or alternative not in self.waiting:
                continue
            if self.waiting[alternative].origin.layer > layer:
                yield alternative

    def _check_exists(self, section: Config, name: str, path: str) -> None:
        """Raises ValueError if a section lacks a setting, or if its block is not chosen."""
        known = [field.name for field in dataclasses.fields(section)]
        if name not in known:
            raise ValueError(self._unknown_setting(path, name, known))
        if isinstance(section, OneOf) and name not in ("type", section.type):
            chosen = "no type is set" if section.type is None else f"type is {section.type!r}"
            raise ValueError(f"{Reference(path)} is in a block that is not chosen: {chosen}")

    def _unknown_setting(self, path: str, name: str, known: Sequence[str]) -> str:
        settings = flat_settings(self.config)
        last = path.rpartition(".")[2]
        same_name = [setting for setting in settings if setting.rpartition(".")[2] == last]
        near = nearest_name_hint(path, same_name or settings)
        if same_name and not near:
            near = f"; did you mean {same_name[0]!r}?"
        allowed = unknown_name_message("setting", name, known).partition("\n")[2]
        return f"unknown setting {shorten(repr(path))}{near}\n{allowed}\n{_HINT}"


def _referenced_paths(value: object) -> Iterator[str]:
    """Yields the paths of the references in a value. Skips texts with invalid references."""
    if isinstance(value, str):
        try:
            parts = parse_text(value)
        except ValueError:
            return
        yield from (part.path for part in parts if isinstance(part, Reference))
    elif isinstance(value, (Mapping, list, tuple)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _referenced_paths(item)


def has_reference(value: object) -> bool:
    """Returns whether a value contains a valid reference."""
    return next(_referenced_paths(value), None) is not None


def _invalidates(flaw: str, path: str) -> bool:
    """Returns whether a problem with one setting means that another one has no value."""
    section, _, name = flaw.rpartition(".")
    decides = bool(section) and name in ("name", "type") and path.startswith(f"{section}.")
    return decides or path == flaw or path.startswith(f"{flaw}.")


def _depth(path: str) -> int:
    return path.count(".")


def _cycle_message(path: str, blockers: Mapping[str, Sequence[str]]) -> str:
    chain = [path]
    while chain.count(chain[-1]) == 1:
        chain.append(blockers[chain[-1]][0])
    return f"the references form a cycle: {shorten(' → '.join(chain), 400)}"


def _origin_note(value: object, origins: Mapping[str, Origin]) -> str:
    """Returns the note of an origin: the references in a value, and where their values were set."""
    paths = [*dict.fromkeys(_referenced_paths(value))]
    if not paths:
        return ""  # The value only contains `$${`.
    if isinstance(value, str) and value == str(Reference(paths[0])):
        return f"= {value} ({origins.get(paths[0], DEFAULT)})"
    named = [f"{Reference(path)} ({origins.get(path, DEFAULT).place})" for path in paths]
    more = [f"{len(named) - _MAX_NAMED} more"] if len(named) > _MAX_NAMED else []
    return f"with {', '.join([*named[:_MAX_NAMED], *more])}"
