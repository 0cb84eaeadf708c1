"""Builds typed, frozen configs from untyped trees, and reports all invalid settings."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orbit_runner.config.errors import Origin, Problem, nearest_origin
from orbit_runner.config.parsing.conversion import (
    BOOLEAN_WORDS,
    Mismatch,
    convert,
    convert_unless_word,
    describe_type,
    format_value,
    options_of,
)
from orbit_runner.config.parsing.tree import (
    Leaf,
    Section,
    drop_lower_layers,
    plain_value,
    resolve_null,
    section_of,
)
from orbit_runner.config.parsing.value_checks import check_choice, check_value, no_effect_message
from orbit_runner.config.schema.base import Config, FrozenMapping, OneOf, default_of
from orbit_runner.config.walk import Node, join_path, nodes
from orbit_runner.errors import unknown_name_message

if TYPE_CHECKING:
    from orbit_runner.config.schema.base import GardenOnly

_ABSENT = object()


class Builder:
    """Merges a tree over a config, and collects the problems.

    With `lenient`, values are accepted as in Model Garden: an integer as a string, a quoted number
    as a number, and `yes`, `no`, `on` and `off`, which are strings in YAML 1.2, as booleans.
    """

    def __init__(self, *, lenient: bool = False) -> None:
        self.problems: list[Problem] = []
        # Settings without effect. The caller decides whether they are errors.
        self.notes: list[Problem] = []
        # The origin of each value that was set, by dotted path.
        self.origins: dict[str, Origin] = {}
        self._lenient = lenient

    def build(self, base: Config, section: Section, path: str = "") -> Config:
        """Returns `base` with the values of a section, which is at the dotted path `path`.

        The result has the class of `base`. Invalid values are added to `problems`, and their
        settings keep the values of `base`.
        """
        settings = {setting.field.name: setting for setting in nodes(base, path)}
        values: dict[str, object] = {}
        for key, node in _drop_overridden_alternatives(section.children, settings).items():
            below = join_path(path, key)
            if key not in settings and key in base.garden_only:
                self._check_garden_only(base.garden_only[key], node, below)
                continue
            if key not in settings:
                if isinstance(base, OneOf) and key in base.unavailable:
                    continue
                message = unknown_name_message("setting", key, [*settings])
                self._add_problem(below, message, node.origin, "unknown-setting")
                continue
            if self._lenient:
                node = _convert_boolean_word(node, settings[key])
            value = self._build_field(settings[key], node)
            if value is not _ABSENT:
                values[key] = value
        built = self._drop_settings_of_former_source(base.replace(**values), base, section, path)
        return _reset_other_blocks(built) if isinstance(built, OneOf) else built

    def _drop_settings_of_former_source(
        self, built: Config, base: Config, section: Section, path: str
    ) -> Config:
        """Returns a section without what lower layers set for the source that they chose."""
        layer = section.source_changed_in
        if layer is None:
            return built
        unread = {problem.path for problem in built.unread()}
        kept = drop_lower_layers(section, layer).children
        names = [name for name in section.children if name in unread and name not in kept]
        places = [join_path(path, name) for name in names]
        for known in [*self.origins]:
            if any(_is_within(known, place) for place in places):
                del self.origins[known]
        return built.replace(**{name: getattr(base, name) for name in names})

    def check(self, config: Config, path: str = "") -> None:
        """Collects problems that involve several settings of a config from `build`."""
        # Skip sections with invalid values: they contain defaults, which would be reported.
        self._check(config, path, tuple(problem.path for problem in self.problems))

    def _check(self, config: object, path: str, flawed: tuple[str, ...]) -> None:
        if isinstance(config, tuple):
            for index, item in enumerate(config):
                self._check(item, f"{path}[{index}]", flawed)
        if not isinstance(config, Config):
            return
        for node in nodes(config, path):
            if node.is_used and node.field.name not in config.checked_later:
                self._check(node.value, node.path, flawed)
        if any(_is_within(flaw, path) or _is_within(path, flaw) for flaw in flawed):
            return
        for problems, collected in (
            (config.problems(), self.problems),
            (config.inert(), self.notes),
        ):
            for item in problems:
                problem = Problem.of(item).below(path)
                collected.append(problem.at(nearest_origin(self.origins, problem.path)))

    def _build_field(self, setting: Node, node: Leaf | Section) -> object:
        meta = setting.field.metadata
        path = setting.path
        base = setting.value
        optional = type(None) in typing.get_args(setting.hint)
        node = _expand_shorthand(node, setting.section_class)
        if isinstance(node, Section):
            node = resolve_null(node, optional=optional)
        if meta.get("variants") is not None and isinstance(node, Section):
            return self._build_variant(setting, node)
        if isinstance(base, Config) and not optional and getattr(node, "value", node) is None:
            return _ABSENT  # An empty section, `trainer:`
        if isinstance(node, Section) and setting.section is not None:
            self.origins[path] = node.origin
            built = self.build(setting.section, node, path)
            if meta.get("unsupported") and built != base:
                message = no_effect_message(
                    "a section with non-default values", meta["unsupported"]
                )
                self._add_problem(path, message, node.origin, "not-supported")
            return built
        if isinstance(node, Section):
            node = Leaf(plain_value(node), node.origin)
        item = setting.item_class
        if item is not None and isinstance(node.value, (list, tuple)):
            return self._build_list(item, base, node.value, node.origin, path)
        value = self._build_value(setting, node)
        if meta.get("merged") and isinstance(base, Mapping) and isinstance(value, Mapping):
            return FrozenMapping({**base, **value})
        return value

    def _build_list(
        self, item: type[Config], base: Any, values: Sequence[object], origin: Origin, path: str
    ) -> tuple[Config, ...]:
        """Builds a list of sections. Merges them over those of `base` if it has equally many.

        Sections that name a class are not merged, because each class has its own arguments.
        """
        self.origins[path] = origin
        merges = isinstance(base, tuple) and len(base) == len(values) and not item.shorthand
        existing = base if merges else ()
        built = []
        for index, value in enumerate(values):
            below = f"{path}[{index}]"
            if item.shorthand and isinstance(value, str):
                value = {item.shorthand: value}
            if not isinstance(value, Mapping):
                problem = f"got {format_value(value)}, expected {describe_type(item)}"
                self._add_problem(below, problem, origin, "wrong-type")
                continue
            start = existing[index] if existing and isinstance(existing[index], Config) else item()
            built.append(self.build(start, section_of(value, origin), below))
        return tuple(built)

    def _build_value(self, setting: Node, node: Leaf) -> object:
        self.origins[setting.path] = node.origin
        meta = setting.field.metadata
        written = plain_value(node)
        if meta.get("lowercase") and isinstance(written, str):
            written = written.lower()
        # Model Garden's experiments may start from values other than the defaults of their classes.
        default = setting.value if meta.get("merged") else default_of(setting.field)
        try:
            if word := meta.get("word"):
                value = convert_unless_word(written, setting.hint, word, lenient=self._lenient)
            else:
                value = convert(written, setting.hint, lenient=self._lenient)
            if type(value) is float and type(default) is int and value == default:
                value = default  # Fingerprints tell 40 from 40.0, and some defaults are integers.
            if isinstance(setting.owner, OneOf) and setting.field.name == "type":
                check_choice(value, type(setting.owner))
            check_value(value, setting.field, default)
        except Mismatch as error:
            self._add_problem(setting.path, str(error), node.origin, error.code)
            return _ABSENT
        return value

    def _check_garden_only(self, setting: GardenOnly, node: Leaf | Section, path: str) -> None:
        value = plain_value(node)
        if value == setting.default:
            return
        code = "not-supported" if setting.refused else "no-effect"
        message = no_effect_message(format_value(value), setting.reason)
        collected = self.problems if setting.refused else self.notes
        collected.append(Problem(path, message, node.origin, code))

    def _build_variant(self, setting: Node, section: Section) -> object:
        registry = setting.field.metadata["variants"]
        base: Any = setting.value
        path = setting.path
        if section.renamed_in is not None:
            section = drop_lower_layers(section, section.renamed_in)
        self.origins[path] = section.origin
        named = section.children.get("name")
        name = named.value if isinstance(named, Leaf) else getattr(base, "name", None)
        at = named.origin if named is not None else section.origin
        if not name:
            known = ", ".join(entry.name for entry in registry.entries())
            message = f"is not set\nallowed: {known}"
            self._add_problem(f"{path}.name", message, at, "not-set")
            return _ABSENT
        try:
            entry = registry.get(str(name))
        except KeyError as error:
            self._add_problem(f"{path}.name", error.args[0], at, "unknown-name")
            return _ABSENT
        cls = entry.load_config()
        return self.build(base if type(base) is cls else cls(name=entry.name), section, path)

    def _add_problem(self, path: str, message: str, origin: Origin | None, code: str) -> None:
        self.problems.append(Problem(path, message, origin, code))


def _convert_boolean_word(node: Leaf | Section, setting: Node) -> Leaf | Section:
    options = options_of(setting.hint)
    takes_text = str in options and not setting.field.metadata.get("word")
    if not isinstance(node, Leaf) or bool not in options or takes_text:
        return node
    word = node.value.lower() if isinstance(node.value, str) else ""
    return Leaf(BOOLEAN_WORDS[word], node.origin) if word in BOOLEAN_WORDS else node


def _expand_shorthand(node: Leaf | Section, cls: type[Config] | None) -> Leaf | Section:
    """Returns the section that a string stands for, if its class has a shorthand."""
    if cls is None or not cls.shorthand:
        return node
    if isinstance(node, Leaf):
        is_text = isinstance(node.value, str)
        return section_of({cls.shorthand: node.value}, node.origin) if is_text else node
    if node.covered is not None and cls.shorthand not in node.children:
        children = {cls.shorthand: node.covered, **node.children}
        return dataclasses.replace(node, children=children)
    return node


def _reset_other_blocks(config: OneOf) -> OneOf:
    if config.type is None or config.type not in config.choices():
        return type(config)(type=config.type)
    return type(config)(**{"type": config.type, config.type: config.get()})


def _drop_overridden_alternatives(
    children: Mapping[str, Leaf | Section], settings: Mapping[str, Node]
) -> dict[str, Leaf | Section]:
    """Returns the children without alternatives (`exclusive_with`) that a higher layer replaces."""
    kept = dict(children)
    for key, node in children.items():
        meta = settings[key].field.metadata if key in settings else {}
        alternative_name = meta.get("exclusive_with")
        alternative = children.get(alternative_name) if alternative_name else None
        is_set = isinstance(node, Leaf) and (
            bool(node.value) or (node.value == 0 and meta.get("holds_at_zero"))
        )
        if is_set and alternative is not None and alternative.origin.layer < node.origin.layer:
            kept.pop(str(alternative_name), None)
    return kept


def _is_within(path: str, root: str) -> bool:
    return not root or path == root or path.startswith(f"{root}.")
