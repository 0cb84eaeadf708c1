"""The settings that a sweep varies, and the places of their values on an axis."""

from __future__ import annotations

import dataclasses
import math
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


class SettingAxis:
    """Maps the values of a setting to coordinates between `start` and `end`."""

    def __init__(
        self, setting: SweptSetting, trials: Sequence[TrialResult], start: float, end: float
    ) -> None:
        self._categories = [inline_yaml(value) for value in setting.categories]
        self._setting = setting
        self._start, self._end = start, end
        values = [t.settings[setting.path] for t in trials if setting.path in t.settings]
        numbers = [float(value) for value in values if is_number(value)]
        self._axis = None
        if not setting.categories and numbers:
            self._axis = Axis(min(numbers), max(numbers), start, end, log=setting.is_log)

    @property
    def gap(self) -> float:
        """The distance between two categories."""
        return (self._end - self._start) / max(1, len(self._categories))

    def position(self, trial: TrialResult) -> float | None:
        """Returns the coordinate of a trial; None if it does not have the setting."""
        if self._setting.path not in trial.settings:
            return None
        value = trial.settings[self._setting.path]
        if self._axis is not None:
            return self._axis.position(float(value))
        aside = (trial.number * _GOLDEN) % 1.0 - 0.5
        return self._center(self._categories.index(inline_yaml(value))) + aside * self.gap * 0.5

    def ticks(self, room: float = math.inf) -> list[tuple[float, str]]:
        """Returns (coordinate, label) of round numbers, or of the categories.

        `room` is the width in pixels for the labels of numbers side by side.
        """
        if self._axis is not None:
            return self._axis.ticks(room)
        stride = 1 + len(self._categories) // 16
        return [
            (self._center(index), value_text(value))
            for index, value in enumerate(self._setting.categories)
            if index % stride == 0
        ]

    def _center(self, index: int) -> float:
        return self._start + (index + 0.5) * self.gap
