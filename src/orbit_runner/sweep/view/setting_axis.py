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
    """Returns the short name of each setting of the space and of the trials, by dotted path."""
    paths = [*results.space, *(path for trial in results.trials for path in trial.settings)]
    return short_setting_names(dict.fromkeys(paths))


def swept_settings(results: SweepResults) -> list[SweptSetting]:
    """Returns the settings of which trials have at least two values."""
    swept = []
    for path, name in setting_names(results).items():
        values = [trial.settings[path] for trial in results.trials if path in trial.settings]
        distinct = list({inline_yaml(value): value for value in values}.values())
        missing = len(values) < len(results.trials)
        if len(distinct) + (missing and bool(distinct)) < 2:
            continue
        entry = results.space.get(path)
        choices = _choices(entry)
        if choices is None and all(map(is_number, values)):
            swept.append(SweptSetting(path, name, _is_log(entry) and min(values) > 0))
            continue
        listed = [value for value in choices or () if value in distinct]
        others = [value for value in distinct if value not in listed]
        swept.append(
            SweptSetting(path, name, categories=(*listed, *sorted(others, key=inline_yaml)))
        )
    return swept


def is_number(value: object) -> TypeGuard[float]:
    """Returns whether the value of a setting is a number; true and false are not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _choices(entry: object) -> Sequence[object] | None:
    if isinstance(entry, Mapping):
        entry = entry.get("choice")
    return entry if isinstance(entry, (list, tuple)) else None


def _is_log(entry: object) -> bool:
    return isinstance(entry, Mapping) and bool("log_uniform" in entry or entry.get("log"))


def place(setting: SweptSetting, trial: TrialResult) -> float | None:
    """Returns the number of a trial's value, or its place among the categories, from 0.

    None if the trial does not have the setting.
    """
    if setting.path not in trial.settings:
        return None
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
        places = [x for trial in trials if (x := place(setting, trial)) is not None]
        low, high = min(places, default=0.0), max(places, default=0.0)
        if setting.categories:
            low, high = -0.5, len(setting.categories) - 0.5
        self._axis = Axis(low, high, start, end, log=setting.is_log)

    def position(self, trial: TrialResult) -> float | None:
        """Returns the coordinate of a trial; None if it does not have the setting."""
        x = place(self._setting, trial)
        return None if x is None else self._axis.position(x)

    def ticks(self) -> list[tuple[float, str]]:
        """Returns (coordinate, label) of round numbers, or of the categories."""
        categories = self._setting.categories
        if not categories:
            return self._axis.ticks()
        return [
            (self._axis.position(index), value_text(categories[index]))
            for index in range(0, len(categories), 1 + len(categories) // 16)
        ]
