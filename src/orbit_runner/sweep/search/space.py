"""The space of a sweep: the values that each setting may have, and when it is set at all."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

# Digits of drawn numbers: enough for any setting, and readable.
_DIGITS = 6


def round_significant(value: float) -> float:
    """Returns a number with six significant digits."""
    return float(f"{value:.{_DIGITS}g}")


@dataclasses.dataclass(frozen=True)
class Choice:
    """One of several values."""

    values: tuple[Any, ...]

    def quantile(self, fraction: float) -> Any:
        """Returns the value for a fraction from 0 to 1."""
        return self.values[min(int(fraction * len(self.values)), len(self.values) - 1)]

    def samples(self) -> list[Any]:
        """Returns the values with which a config is checked."""
        return [*self.values]

    def grid(self) -> list[Any] | None:
        """Returns the values that a grid search uses; None if it needs their number."""
        return [*self.values]


@dataclasses.dataclass(frozen=True)
class Uniform:
    """A number between two others."""

    low: float
    high: float
    log: bool = False  # whether its logarithm is uniform
    count: int | None = None  # how many values a grid search uses

    def quantile(self, fraction: float) -> float:
        """Returns the number for a fraction from 0 to 1."""
        if self.log:
            low, high = math.log(self.low), math.log(self.high)
            return self.clip(math.exp(low + (high - low) * fraction))
        return self.clip(self.low + (self.high - self.low) * fraction)

    def clip(self, value: float) -> float:
        """Rounds a number to few digits, within the range."""
        return min(max(round_significant(value), self.low), self.high)

    def samples(self) -> list[float]:
        """Returns both ends."""
        return [self.low, self.high]

    def grid(self) -> list[float] | None:
        """Returns the values that a grid search uses, evenly spaced; None without `count`."""
        if self.count is None:
            return None
        if self.count == 1:
            return [self.quantile(0.5)]
        return [self.quantile(index / (self.count - 1)) for index in range(self.count)]


@dataclasses.dataclass(frozen=True)
class Integers:
    """An integer from `low` to `high`, in steps."""

    low: int
    high: int
    step: int = 1
    log: bool = False
    count: int | None = None

    def quantile(self, fraction: float) -> int:
        """Returns the number for a fraction from 0 to 1."""
        if self.log:
            # 0.5 is added on both sides, so that the ends are as likely as the others.
            low, high = math.log(self.low - 0.5), math.log(self.high + 0.5)
            return min(max(round(math.exp(low + (high - low) * fraction)), self.low), self.high)
        count = (self.high - self.low) // self.step + 1
        return self.low + min(int(fraction * count), count - 1) * self.step

    def samples(self) -> list[int]:
        """Returns the first and the last value."""
        return [self.low, self.quantile(1.0)]

    def grid(self) -> list[int] | None:
        """Returns the values that a grid search uses."""
        if self.count is None:
            return None if self.log else [*range(self.low, self.high + 1, self.step)]
        points = [index / max(self.count - 1, 1) for index in range(self.count)]
        return [*dict.fromkeys(self.quantile(point) for point in points)]


Values = Choice | Uniform | Integers


@dataclasses.dataclass(frozen=True)
class Dimension:
    """A setting of the space.

    Attributes:
        path: The dotted path of the setting.
        values: Its values.
        when: Values of other settings of the space, by dotted path. The setting is set only if
            each of them has one of these values.
    """

    path: str
    values: Values
    when: Mapping[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)

    def is_active(self, settings: Mapping[str, Any]) -> bool:
        """Returns whether the setting is set, given those that it depends on."""
        return all(
            path in settings and settings[path] in allowed for path, allowed in self.when.items()
        )


Space = tuple[Dimension, ...]


def find_cycle(conditions: Mapping[str, Sequence[str]]) -> list[str]:
    """Returns settings that depend on each other, the first one also last; [] if there are none.

    `conditions` maps a setting to those that it depends on.
    """
    done: set[str] = set()

    def visit(path: str, above: list[str]) -> list[str]:
        if path in above:
            return [*above[above.index(path) :], path]
        if path in done:
            return []
        for parent in conditions.get(path, ()):
            if found := visit(parent, [*above, path]):
                return found
        done.add(path)
        return []

    return next((found for path in conditions if (found := visit(path, []))), [])


def sort_by_dependency(dimensions: Sequence[Dimension]) -> Space:
    """Returns the settings, each after those that it depends on. There must be no cycle."""
    by_path = {one.path: one for one in dimensions}
    found: dict[str, Dimension] = {}

    def add(one: Dimension) -> None:
        for parent in one.when:
            add(by_path[parent])
        found.setdefault(one.path, one)

    for one in dimensions:
        add(one)
    return tuple(found.values())


def make_sample(space: Space, path: str, value: Any) -> dict[str, Any]:
    """Returns settings in which a setting has a value, and all others their first value."""
    forced: dict[str, Any] = {path: value}
    by_path = {one.path: one for one in space}
    open_paths = [path]
    while open_paths:
        for parent, allowed in by_path[open_paths.pop()].when.items():
            if parent not in forced:
                forced[parent] = allowed[0]
                open_paths.append(parent)
    settings: dict[str, Any] = {}
    for one in space:
        if one.is_active(settings):
            settings[one.path] = forced.get(one.path, one.values.samples()[0])
    return settings


def samples(space: Space) -> list[dict[str, Any]]:
    """Returns settings in which each value of a choice and both ends of each range occur."""
    found = [make_sample(space, one.path, v) for one in space for v in one.values.samples()]
    return [one for index, one in enumerate(found) if one not in found[:index]] or [{}]
