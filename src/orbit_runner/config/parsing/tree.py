"""The untyped tree that files and flags are read into: values with their origins."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orbit_runner.config.errors import Origin


class PythonTuple(tuple[Any, ...]):
    """A list that a file marks as a tuple: code of Model Garden receives it as one."""


@dataclasses.dataclass
class Leaf:
    """A scalar or a list, with its origin."""

    value: object
    origin: Origin


@dataclasses.dataclass
class Section:
    """Values and sections by name."""

    origin: Origin  # Where the section was first set.
    children: dict[str, Leaf | Section] = dataclasses.field(default_factory=dict)
    # The last layer that changed `name`, if any. Values of lower layers are for another class.
    renamed_in: int | None = None
    # The last layer that changed `source`, if any.
    source_changed_in: int | None = None
    # The null that a layer merged over the section, and the section before that. For an optional
    # section, it means None. For others, an empty `trainer:` has no effect.
    nulled: tuple[Leaf, Section] | None = None
    # The string that the section was merged over. It may be the shorthand of a section.
    covered: Leaf | None = None


def section_of(values: Mapping[str, object], origin: Origin) -> Section:
    """Returns a section with the content of nested dicts, which share one origin."""
    children: dict[str, Leaf | Section] = {
        str(key): section_of(value, origin) if isinstance(value, Mapping) else Leaf(value, origin)
        for key, value in values.items()
    }
    return Section(origin, children)


def assignment(path: Sequence[str], value: object, origin: Origin) -> Section:
    """Returns the root section that sets one value at a path of at least one name."""
    node = section_of(value, origin) if isinstance(value, Mapping) else Leaf(value, origin)
    return nested(path, node, origin)


def nested(path: Sequence[str], node: Leaf | Section, origin: Origin) -> Section:
    """Returns the root section that contains a node at a path."""
    for name in reversed(path):
        node = Section(origin, {name: node})
    assert isinstance(node, Section)
    return node


def merge(base: Section, over: Section) -> None:
    """Merges `over` into `base` in place. Sections are merged, all other values replaced."""
    for key, node in over.children.items():
        existing = base.children.get(key)
        if isinstance(existing, Section) and isinstance(node, Section):
            merge(existing, node)
        elif isinstance(existing, Section) and isinstance(node, Leaf) and node.value is None:
            base.children[key] = Section(node.origin, nulled=(node, existing))
        else:
            if key == "name" and _differs(existing, node):
                base.renamed_in = node.origin.layer
            if key == "source" and _differs(existing, node):
                base.source_changed_in = node.origin.layer
            if isinstance(existing, Leaf) and isinstance(node, Section):
                node.covered = existing if isinstance(existing.value, str) else None
            base.children[key] = node


def _differs(existing: Leaf | Section | None, node: Leaf | Section) -> bool:
    return isinstance(existing, Leaf) and isinstance(node, Leaf) and existing.value != node.value


def resolve_null(section: Section, *, optional: bool) -> Leaf | Section:
    """Returns the value of a section that a layer may have set to null.

    `optional` is whether null is a valid value. Otherwise, null has no effect.
    """
    if section.nulled is None:
        return section
    null, before = section.nulled
    above = dataclasses.replace(section, nulled=None, covered=None)
    if optional:
        return above if above.children else null
    restored = resolve_null(before, optional=False)
    assert isinstance(restored, Section)
    merge(restored, above)
    return restored


def drop_lower_layers(section: Section, layer: int) -> Section:
    """Returns the part of a section that was set in the given layer or a higher one."""
    kept: dict[str, Leaf | Section] = {}
    for key, node in section.children.items():
        if isinstance(node, Section):
            below = drop_lower_layers(node, layer)
            if below.children or below.nulled:
                kept[key] = below
        elif node.origin.layer >= layer:
            kept[key] = node
    nulled = section.nulled
    if nulled is not None:
        null, before = nulled
        before = drop_lower_layers(before, layer)
        nulled = (null, before) if null.origin.layer >= layer else None
    covered = section.covered
    if covered is not None and covered.origin.layer < layer:
        covered = None
    return dataclasses.replace(section, children=kept, nulled=nulled, covered=covered)


def set_layer(section: Section, layer: int) -> None:
    """Changes the layer of a section that was just read from a file, and of all below it."""
    section.origin = dataclasses.replace(section.origin, layer=layer)
    for node in section.children.values():
        if isinstance(node, Section):
            set_layer(node, layer)
        else:
            node.origin = dataclasses.replace(node.origin, layer=layer)


def leaves(section: Section, prefix: str = "") -> Iterator[tuple[str, Leaf]]:
    """Yields (dotted path, leaf) for each leaf."""
    for key, node in section.children.items():
        path = f"{prefix}.{key}" if prefix else key
        if isinstance(node, Section):
            yield from leaves(node, path)
        else:
            yield path, node


def plain_value(node: Leaf | Section) -> object:
    """Returns the value of a leaf, or those of a section as nested dicts."""
    if isinstance(node, Leaf):
        return node.value
    return {key: plain_value(child) for key, child in node.children.items()}
