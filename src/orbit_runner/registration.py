"""Registries of named entries, which are imported only when they are used."""

from __future__ import annotations

import dataclasses
import importlib
import types
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from orbit_runner.errors import RunnerError, unknown_name_message


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceTraits:
    """What a config has to know about a data source before it is imported.

    Attributes:
        settings: The settings that it reads, besides those that all sources have.
        required: The settings that must be set, each with an example.
        instead: The settings that it does not read, each with the setting to use instead, or "".
        splits: The values of the setting `split` that it has itself.
        split_setting: The setting that names the split, if the task does not split the data.
        separation: What to set so that the sections read different examples; "": see the task.
        is_generated: Whether its examples are drawn as the config asks. It can replace any other
            source, so it accepts the settings of all.
        knows_classes: Whether it knows the number of classes.
        needs_python: Whether batches are read by Python code, which workers that run only graphs
            and tf.data services cannot call.
    """

    settings: tuple[str, ...] = ()
    required: tuple[tuple[str, str], ...] = ()
    instead: tuple[tuple[str, str], ...] = ()
    splits: tuple[str, ...] = ()
    split_setting: str = "split"
    separation: str = ""
    is_generated: bool = False
    knows_classes: bool = True
    needs_python: bool = False


@dataclasses.dataclass(frozen=True)
class Entry:
    """A named config class and implementation."""

    name: str
    # The class, or "module:name"; None if the entry has no section of the config.
    config: type | str | None
    target: object  # The implementation, or "module:name".
    help: str = ""  # One line for `runner list`.
    data: type | str | None = None  # Of a task: the class of what it reads, or "module:name".
    traits: SourceTraits = SourceTraits()  # Of a data source.

    def load_config(self) -> Any:
        """Returns the config class. Raises RunnerError if it cannot be imported."""
        return _load_reference(self.name, self.config)

    def load(self) -> Any:
        """Returns the implementation. Raises RunnerError if it cannot be imported."""
        return _load_reference(self.name, self.target)

    def load_data(self) -> Any:
        """Returns the class of what a task reads. Raises RunnerError if it cannot be imported."""
        return _load_reference(self.name, self.data)


def _load_reference(name: str, reference: object) -> Any:
    if not isinstance(reference, str):
        return reference
    module, _, attribute = reference.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise RunnerError(
            f"cannot load {name!r}, registered as {reference}: {error}", code="import-failed"
        ) from error


class Registry:
    """A set of named entries of one kind.

    Packages can register entries with entry points, which are loaded only when an unknown name is
    looked up or all entries are listed.
    """

    def __init__(
        self,
        kind: str,
        *,
        entry_point_group: str | None = None,
        includes: Mapping[str, Registry] = types.MappingProxyType({}),
    ) -> None:
        self.kind = kind
        self._group = entry_point_group
        self._entries: dict[str, Entry] = {}
        # Registries whose entries this one has, too, each with the suffix of names that another
        # included registry has already. Own entries come first. Sources whose examples are drawn
        # as a task asks are only for that task.
        self._includes = includes

    def register(
        self,
        name: str,
        *,
        target: object,
        config: type | str | None = None,
        help: str = "",
        data: type | str | None = None,
        traits: SourceTraits | None = None,
    ) -> Entry:
        """Adds an entry and returns it. Raises RunnerError if another entry has the name."""
        entry = Entry(name, config, target, help, data, traits or SourceTraits())
        existing = self._entries.get(name)
        # The same registration may run twice: for `--import` and for an entry point.
        if existing is not None and (existing.config, existing.target) != (config, target):
            raise RunnerError(
                f"{self.kind} {name!r} is already registered, by {existing.target}",
                code="set-twice",
            )
        self._entries[name] = entry
        return entry

    def get(self, name: str) -> Entry:
        """Returns an entry. Raises KeyError, with a message that lists all names, if not found."""
        if name not in self:
            self._load_entry_points()
        known = self._all_entries()
        if name not in known:
            raise KeyError(unknown_name_message(self.kind, name, list(known)))
        return known[name]

    def __contains__(self, name: object) -> bool:
        """Returns whether an entry is registered. Does not load entry points."""
        return name in self._all_entries()

    def registered(self) -> tuple[Entry, ...]:
        """Returns the entries that are registered so far. Does not load entry points."""
        return tuple(self._all_entries().values())

    def entries(self) -> list[Entry]:
        """Returns all entries, including those of entry points, sorted by name."""
        self._load_entry_points()
        known = self._all_entries()
        return [known[name] for name in sorted(known)]

    def _all_entries(self) -> dict[str, Entry]:
        if not self._includes:
            return self._entries
        known = dict(self._entries)
        for suffix, registry in self._includes.items():
            for name, entry in registry._all_entries().items():
                own_name = f"{name}{suffix}" if name in known else name
                if not entry.traits.is_generated and name not in self._entries:
                    known.setdefault(own_name, dataclasses.replace(entry, name=own_name))
        return known

    def _load_entry_points(self) -> None:
        group, self._group = self._group, None
        if group is None:
            return
        for point in entry_points(group=group):
            try:
                loaded: object = point.load()
            except (ImportError, AttributeError) as error:
                raise RunnerError(
                    f"cannot load entry point {point.name!r} of {group}: {error}",
                    code="import-failed",
                ) from error
            if callable(loaded):
                loaded()
