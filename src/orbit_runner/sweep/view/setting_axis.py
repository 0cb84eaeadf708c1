"""The settings that a sweep varies, and the places of their values on an axis."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TypeGuard

from orbit_runner.config.serialize import inline_yaml, short_setting_names
from orbit_runner.reporting.svg import Axis
from orbit_runner.sweep.results import SweepResults, TrialResult

# Values of one category are drawn beside each other, at multiples of the golden ratio, so that
# trials with the same value do not hide each other.
_GOLDEN = 0.618034


@dataclasses.dataclass(frozen=True)
class SweptSetting:
    """A setting that differs between trials.

    Attributes:
        path: Its dotted path.
        name: The shortest end of the path that no other setting of the sweep has.
        is_log: Whether its axis is logarithmic.
        categories: Its values if they are a choice, in the order of the sweep file; empty if they
            are numbers from a range.
    """

    path: str
    name: str
    is_log: bool = False
    categories: tuple[object, ...] = ()


def value_text(value: object) -> str:
    """Returns the value of a setting on one line; a float with four significant digits."""
    return f"{value:.4g}" if isinstance(value, float) else inline_yaml(value)


def cut_middle(text: str, most: int) -> str:
    """Returns a text of at most `most` characters; the middle of a longer one is left out."""
    if len(text) <= most:
        return text
    head = most // 2
    return f"{text[:head]}…{text[len(text) - (most - head - 1) :]}"


def setting_names(results: SweepResults) -> dict[str, str]:
    """Returns the short name of each setting of the space, by dotted path."""
    return short_setting_names(results.space)


def swept_settings(results: SweepResults) -> list[SweptSetting]:
    """Returns the settings of which trials have at least two values."""
    swept = []
    for path, name in setting_names(results).items():
        values = [trial.settings[path] for trial in results.trials if path in trial.settings]
        distinct = list({inline_yaml(value): value for value in values}.values())
        if len(distinct) < 2:
            continue
        entry = results.space[path]
        if isinstance(entry, Mapping):
            is_log = bool("log_uniform" in entry or entry.get("log"))
            swept.append(SweptSetting(path, name, is_log))
        else:
            categories = tuple(value for value in entry if value in distinct)
            swept.append(SweptSetting(path, name, categories=categories))
    return swept


def is_number(value: object) -> TypeGuard[float]:
    """Returns whether the value of a setting is a number; true and false are not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def place(setting: SweptSetting, trial: TrialResult) -> float:
    """Returns the number of a trial's value, or its place among the categories, from 0."""
    value = trial.settings[setting.path]
    if not setting.categories:
        return float(value)
    aside = (trial.number * _GOLDEN) % 1.0 - 0.5
    return [*map(inline_yaml, setting.categories)].index(inline_yaml(value)) + aside / 2


class SettingAxis:
    """Maps the values of a setting to coordinates between `start` and `end`."""

    def __init__(
        self, setting: SweptSetting, trials: Sequence[TrialResult], start: float, end: float
    ) -> None:
        self._setting = setting
        places = [place(setting, trial) for trial in trials]
        low, high = min(places), max(places)
        if setting.categories:
            low, high = -0.5, len(setting.categories) - 0.5
        self._axis = Axis(low, high, start, end, log=setting.is_log)

    def position(self, trial: TrialResult) -> float:
        """Returns the coordinate of a trial."""
        return self._axis.position(place(self._setting, trial))

    def ticks(self) -> list[tuple[float, str]]:
        """Returns (coordinate, label) of round numbers, or of the categories."""
        categories = self._setting.categories
        if not categories:
            return self._axis.ticks()
        return [
            (self._axis.position(index), value_text(categories[index]))
            for index in range(0, len(categories), 1 + len(categories) // 16)
        ]
