"""Named entries of one kind, each imported only when it is used."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

from orbit_runner.errors import RunnerError, unknown


@dataclasses.dataclass(frozen=True)
class Entry:
    """One name in a registry.

    Attributes:
        name: The name in configs.
        config: The config class of its section, or where to import it from.
        target: The implementation, or where to import it from.
        help: One line for `runner list`.
    """

    name: str
    config: Any
    target: Any
    help: str = ""

    def load_config(self) -> Any:
        """Imports and returns the config class.

        Raises:
            RunnerError: It cannot be imported.
        """
        return _load(self.name, self.config)

    def load(self) -> Any:
        """Imports and returns the implementation.

        Raises:
            RunnerError: It cannot be imported.
        """
        return _load(self.name, self.target)


def _load(name: str, reference: Any) -> Any:
    if not isinstance(reference, str):
        return reference
    module, _, attribute = reference.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise RunnerError(f"{name!r} is registered as {reference}: {error}") from error


class Registry:
    """A set of named entries of one kind."""

    def __init__(self, kind: str, *, entry_point_group: str | None = None) -> None:
        """Makes an empty registry.

        Args:
            kind: What its entries are, for messages.
            entry_point_group: Entry points of installed packages that register entries when
                loaded; looked at only when a name is not known already, or when all are listed.
        """
        self.kind = kind
        self._group = entry_point_group
        self._entries: dict[str, Entry] = {}

    def register(self, name: str, *, config: Any, target: Any, help: str = "") -> Entry:
        """Adds an entry.

        Args:
            name: Its name in configs.
            config: Its config class, or `"module:name"` of it.
            target: Its implementation, or `"module:name"` of it.
            help: One line for `runner list`.

        Returns:
            The entry.

        Raises:
            RunnerError: The name is taken by something else.
        """
        entry = Entry(name, config, target, help)
        taken = self._entries.get(name)
        # The same line may run twice: by `--import` and by an entry point.
        if taken is not None and (taken.config, taken.target) != (config, target):
            raise RunnerError(f"{self.kind} {name!r} is registered already, by {taken.target}")
        self._entries[name] = entry
        return entry

    def get(self, name: str) -> Entry:
        """Returns the entry of that name.

        Raises:
            KeyError: There is none; the message names the nearest and lists all.
        """
        if name not in self._entries:
            self._load_entry_points()
        if name not in self._entries:
            raise KeyError(unknown(self.kind, name, list(self._entries)))
        return self._entries[name]

    def entries(self) -> list[Entry]:
        """Returns all entries, those of installed packages included, sorted by name."""
        self._load_entry_points()
        return [self._entries[name] for name in sorted(self._entries)]

    def _load_entry_points(self) -> None:
        group, self._group = self._group, None
        if group is None:
            return
        for point in entry_points(group=group):
            try:
                loaded: Callable[[], None] | Any = point.load()
            except (ImportError, AttributeError) as error:
                raise RunnerError(f"entry point {group}: {point.name}: {error}") from error
            if callable(loaded):
                loaded()
