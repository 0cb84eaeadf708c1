"""The untyped tree that files and flags are read into: values, each with its origin."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orbit_runner.config.provenance import Origin

# Levels of sections and lists; the deepest setting of ours has seven.
MAX_DEPTH = 64


@dataclasses.dataclass
class Leaf:
    """A scalar or a list, and where it was set."""

    value: Any
    origin: Origin


@dataclasses.dataclass
class Section:
    """Named values and sections below one name.

    Attributes:
        origin: Where the section was opened first.
        children: What it holds.
        renamed_in: The layer that last changed its `name` from another one, if any. What lower
            layers said was said of something else.
        nulled: The null that a layer laid over the section, and what the section held before. For
            an optional section it means none; for any other, `trainer:` with nothing below it.
    """

    origin: Origin
    children: dict[str, Leaf | Section] = dataclasses.field(default_factory=dict)
    renamed_in: int | None = None
    nulled: tuple[Leaf, Section] | None = None


def section_of(values: Mapping[str, Any], origin: Origin) -> Section:
    """Makes a section of nested dicts that share one origin."""
    children: dict[str, Leaf | Section] = {
        str(key): section_of(value, origin) if isinstance(value, Mapping) else Leaf(value, origin)
        for key, value in values.items()
    }
    return Section(origin, children)


def assignment(path: Sequence[str], value: Any, origin: Origin) -> Section:
    """Makes the section that holds one value at a path.

    Args:
        path: The names from the root, at least one.
        value: A scalar, a list, or nested dicts.
        origin: Where it was written.

    Returns:
        The root section.
    """
    node = section_of(value, origin) if isinstance(value, Mapping) else Leaf(value, origin)
    for name in reversed(path):
        node = Section(origin, {name: node})
    assert isinstance(node, Section)
    return node


def merge(base: Section, over: Section) -> None:
    """Lays one tree over another, in place; sections merge, everything else is replaced."""
    for key, node in over.children.items():
        there = base.children.get(key)
        if isinstance(there, Section) and isinstance(node, Section):
            merge(there, node)
        elif isinstance(there, Section) and isinstance(node, Leaf) and node.value is None:
            base.children[key] = Section(node.origin, nulled=(node, there))
        else:
            if key == "name" and _differs(there, node):
                base.renamed_in = node.origin.layer
            base.children[key] = node


def _differs(there: Leaf | Section | None, node: Leaf | Section) -> bool:
    return isinstance(there, Leaf) and isinstance(node, Leaf) and there.value != node.value


def after_null(section: Section, *, optional: bool) -> Leaf | Section:
    """Returns what holds of a section that a layer set to null.

    Args:
        section: A section.
        optional: Whether null is a value that it may have.
    """
    if section.nulled is None:
        return section
    null, before = section.nulled
    above = Section(section.origin, section.children, section.renamed_in)
    if optional:
        return above if above.children else null
    restored = after_null(before, optional=False)
    assert isinstance(restored, Section)
    merge(restored, above)
    return restored


def without_layers_below(section: Section, layer: int) -> Section:
    """Returns the part of a section that the given layer and those above it set."""
    kept: dict[str, Leaf | Section] = {}
    for key, node in section.children.items():
        if isinstance(node, Section):
            below = without_layers_below(node, layer)
            if below.children or below.nulled:
                kept[key] = below
        elif node.origin.layer >= layer:
            kept[key] = node
    nulled = section.nulled
    if nulled is not None:
        null, before = nulled
        before = without_layers_below(before, layer)
        nulled = (null, before) if null.origin.layer >= layer else None
    return Section(section.origin, kept, section.renamed_in, nulled)


def leaves(section: Section, prefix: str = "") -> Iterator[tuple[str, Leaf]]:
    """Yields every leaf with its dotted path."""
    for key, node in section.children.items():
        path = f"{prefix}.{key}" if prefix else key
        if isinstance(node, Section):
            yield from leaves(node, path)
        else:
            yield path, node
