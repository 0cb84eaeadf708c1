"""Walks a config: yields its settings and sections, with their paths and declarations."""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Iterator

from orbit_runner.config.parsing.conversion import item_class, section_class
from orbit_runner.config.schema.base import Config, OneOf


@functools.cache
def _hints(cls: type) -> dict[str, object]:
    return typing.get_type_hints(cls)


@dataclasses.dataclass(frozen=True)
class Node:
    """A setting or a section of a config, as its class declares it.

    Attributes:
        path: Its dotted path.
        owner: The section that contains it.
        field: Its declaration.
        value: Its value.
    """

    path: str
    owner: Config
    field: dataclasses.Field[object]
    value: object

    @property
    def hint(self) -> object:
        """Its type."""
        cls: type = type(self.owner)
        return _hints(cls)[self.field.name]

    @property
    def section_class(self) -> type[Config] | None:
        """The class of a section, which may be a subclass of its type; None for a setting."""
        return type(self.value) if isinstance(self.value, Config) else section_class(self.hint)

    @functools.cached_property
    def section(self) -> Config | None:
        """The section, or its defaults if it is null; None for a setting."""
        if isinstance(self.value, Config):
            return self.value
        return None if self.section_class is None else self.section_class()

    @property
    def item_class(self) -> type[Config] | None:
        """The class of its items, if it is a list of sections."""
        return item_class(self.hint)

    @property
    def is_used(self) -> bool:
        """Whether it has an effect. Unsupported settings and blocks not chosen have defaults."""
        if isinstance(self.owner, OneOf) and self.field.name not in ("type", self.owner.type):
            return False
        return not self.field.metadata.get("unsupported")


def join_path(path: str, name: str) -> str:
    """Returns the dotted path of what a section at a dotted path contains under a name."""
    return f"{path}.{name}" if path else name


def nodes(config: Config, path: str = "") -> Iterator[Node]:
    """Yields what a section at a dotted path contains, without what is below that."""
    for field in dataclasses.fields(config):
        yield Node(join_path(path, field.name), config, field, getattr(config, field.name))


def walk(config: Config, path: str = "") -> Iterator[Node]:
    """Yields what is in use below a section, in the order of declaration.

    A section comes before its settings. A list of sections is a value.
    """
    for node in nodes(config, path):
        if node.is_used:
            yield node
            if isinstance(node.value, Config):
                yield from walk(node.value, node.path)
