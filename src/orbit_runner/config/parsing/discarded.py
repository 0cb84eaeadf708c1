"""Settings that a section loses because a higher layer chooses another class for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from orbit_runner.config.parsing.conversion import format_value
from orbit_runner.config.parsing.tree import Leaf, Section, leaves
from orbit_runner.config.provenance import Origin
from orbit_runner.config.schema.base import Config

_MOST = 8


@dataclasses.dataclass(frozen=True)
class Discarded:
    """The settings that lower layers set in a section of another class.

    Attributes:
        path: The dotted path of the setting that chooses the class: `task.model.name`.
        name: The class that is chosen.
        origin: Where it was chosen.
        unknown: The settings that this class does not have, with their values.
        known: The settings that it has, with their values in the lower layers and now.
    """

    path: str
    name: str
    origin: Origin | None
    unknown: Mapping[str, str]
    known: Mapping[str, tuple[str, str]]

    def __str__(self) -> str:
        """Returns the note in one line."""
        parts = [f"note: {self.path} is {self.name!r} ({self.origin})"]
        if self.unknown:
            listed = _list_some([f"{path}={value}" for path, value in self.unknown.items()])
            parts.append(f"settings for the one before are not used: {listed}")
        if self.known:
            section = self.path.rpartition(".")[0]
            changes = [f"{path} {before} → {now}" for path, (before, now) in self.known.items()]
            first, (before, _) = next(iter(self.known.items()))
            parts.append(
                f"{self.name!r} has its own defaults: {_list_some(changes)}; to keep a value, set "
                f"it: --{section}.{first}={before}"
            )
        return "; ".join(parts)


def find_discarded(
    path: str, chosen: Leaf, dropped: Mapping[str, Leaf], built: Config
) -> Discarded | None:
    """Returns the dropped settings whose values the new section does not have, or None.

    `path` is that of the setting `chosen`. `dropped` are leaves by path below the section, and
    `built` is the section of the new class.
    """
    unknown: dict[str, str] = {}
    known: dict[str, tuple[str, str]] = {}
    for below, leaf in dropped.items():
        found, now = _value_of(built, below)
        before = format_value(leaf.value)
        if not found:
            unknown[below] = before
        elif before != format_value(list(now) if isinstance(now, tuple) else now):
            known[below] = (before, format_value(list(now) if isinstance(now, tuple) else now))
    if not unknown and not known:
        return None
    return Discarded(path, str(chosen.value), chosen.origin, unknown, known)


def lower_leaves(section: Section, layer: int, kept: Section | None = None) -> dict[str, Leaf]:
    """Returns the leaves that files and flags below a layer set, except those in `kept`.

    Layers below 1 contain defaults.
    """
    above = {path for path, _ in leaves(kept)} if kept is not None else set()
    return {
        path: leaf
        for path, leaf in leaves(section)
        if 0 < leaf.origin.layer < layer and path not in above
    }


def _value_of(config: Config, path: str) -> tuple[bool, object]:
    """Returns whether a section has a setting, and its value."""
    value: object = config
    for name in path.split("."):
        if not isinstance(value, Config) or not hasattr(value, name):
            return False, None
        value = getattr(value, name)
    return True, value


def _list_some(texts: list[str]) -> str:
    more = f" and {len(texts) - _MOST} more" if texts[_MOST:] else ""
    return ", ".join(texts[:_MOST]) + more
