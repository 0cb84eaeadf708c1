"""Parallel coordinates: an axis for each setting and one for the objective, a line for each trial.

Lines are darker (in dark mode: lighter) the better the rank of the trial is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from orbit_runner.reporting.svg import format_tick, value_axis
from orbit_runner.sweep.results import SweepResults, TrialResult
from orbit_runner.sweep.view.ranking import (
    objective_of,
    objective_text,
    rank_trials,
    settings_text,
)
from orbit_runner.sweep.view.setting_axis import (
    SettingAxis,
    cut_middle,
    setting_names,
    swept_settings,
)

SHADES = 6
_SPACE = 150  # between two axes
_LEAST_WIDTH = 760  # of the whole chart
_TOP, _BOTTOM = 34, 290
_HEIGHT = 330
_LEFT, _RIGHT = 86, 70
_NONE = 312  # Where lines of trials go that lack the setting or the objective.
_MOST_LABEL = 11  # characters
_MOST_NAME = 20  # characters
_MANY = 60  # Lines are fainter if there are more.
_FAILED = ("diverged", "failed")
_NOT_DRAWN = ("pending", "excluded")


def parallel_coordinates(results: SweepResults) -> str:
    """Returns the chart as a figure; "" if no setting differs between trials with a value."""
    drawn = [
        trial
        for trial in reversed(rank_trials(results))  # The best one last, above the others.
        if trial.status in _FAILED
        or (objective_of(trial) is not None and trial.status not in _NOT_DRAWN)
    ]
    values = [value for trial in drawn if (value := objective_of(trial)) is not None]
    settings = swept_settings(results)
    if not values or not settings:
        return ""
    width = max(_LEAST_WIDTH, _LEFT + _RIGHT + _SPACE * len(settings))
    space = (width - _LEFT - _RIGHT) / len(settings)
    axes = [SettingAxis(setting, drawn, _BOTTOM, _TOP) for setting in settings]
    parts: list[str] = []
    places: list[list[float | None]] = [[axis.position(t) for axis in axes] for t in drawn]
    objective = _ObjectiveAxis(results, values)
    for trial, ys in zip(drawn, places, strict=True):
        ends = [*ys, objective.position(trial)]
        points = [(_LEFT + space * n, _NONE if y is None else y) for n, y in enumerate(ends)]
        parts.append(_line(trial, points, _kind(trial, results, objective), results))
    lacking = [any(ys[n] is None for ys in places) for n in range(len(settings))]
    for n, (setting, axis) in enumerate(zip(settings, axes, strict=True)):
        title = f"{setting.name} (log)" if setting.is_log else setting.name
        note = "not set" if lacking[n] else ""
        parts += _axis(_LEFT + space * n, title, setting.path, axis.ticks(), note)
    note = "no value" if any(objective_of(trial) is None for trial in drawn) else ""
    title = f"{results.objective_name} (log)" if objective.is_log else results.objective_name
    parts += _axis(_LEFT + space * len(settings), title, results.metric, objective.ticks(), note)
    kind = '"wide many"' if len(drawn) > _MANY else "wide"
    return (
        f'<figure class={kind}><svg viewBox="0 0 {width} {_HEIGHT}" style="min-width:{width}px" '
        f'role="img" aria-label="Settings and objective of each trial">{"".join(parts)}</svg>'
        "</figure>"
    )


class _ObjectiveAxis:
    """The last axis, and the shade of each value by its rank."""

    def __init__(self, results: SweepResults, values: Sequence[float]) -> None:
        # The axis of a chart of another height, stretched to this one.
        self._axis = value_axis(results.metric, values)
        self._from = (self._axis.position(min(values)), self._axis.position(max(values)))
        self._order = sorted(values, reverse=results.mode == "max")
        self.is_log = self._axis.log

    def position(self, trial: TrialResult) -> float | None:
        value = objective_of(trial)
        return None if value is None else self._stretch(value)

    def _stretch(self, value: float) -> float:
        low, high = self._from
        share = (self._axis.position(value) - low) / (high - low) if high != low else 0.5
        return _BOTTOM + share * (_TOP - _BOTTOM)

    def ticks(self) -> list[tuple[float, str]]:
        ticks = [(self._stretch(value), format_tick(value)) for value in self._axis.ticks()]
        return [(y, text) for y, text in ticks if _TOP - 1 <= y <= _BOTTOM + 1]

    def shade(self, value: float) -> int:
        """Returns 0 for the best trials, up to `SHADES` - 1 for the worst."""
        return self._order.index(value) * SHADES // len(self._order)


def _kind(trial: TrialResult, results: SweepResults, objective: _ObjectiveAxis) -> str:
    value = objective_of(trial)
    if value is None:
        return "lost"
    best = results.best
    return "best" if best is trial else f"trial q{objective.shade(value)}"


def _line(
    trial: TrialResult, points: Sequence[tuple[float, float]], kind: str, results: SweepResults
) -> str:
    (x, y), *rest = points
    path = f"M{x:.1f} {y:.1f}"
    bend = (rest[0][0] - x) * 0.4
    for next_x, next_y in rest:
        path += (
            f"C{x + bend:.1f} {y:.1f} {next_x - bend:.1f} {next_y:.1f} {next_x:.1f} {next_y:.1f}"
        )
        x, y = next_x, next_y
    values = settings_text(trial.settings, setting_names(results))
    hint = f"trial {trial.number}, {trial.status}: {objective_text(trial)} {values}"
    return f'<path class="strand {kind}" d="{path}"><title>{escape(hint)}</title></path>'


def _axis(
    x: float, title: str, path: str, ticks: Sequence[tuple[float, str]], note: str
) -> Iterator[str]:
    yield f'<path class=axis d="M{x:.1f} {_TOP}V{_BOTTOM}"/>'
    yield (
        f'<text x={x:.1f} y=16 class="mid name">{escape(cut_middle(title, _MOST_NAME))}'
        f"<title>{escape(path)}</title></text>"
    )
    for y, text in [*ticks, *([(float(_NONE), note)] if note else [])]:
        yield f'<path class=axis d="M{x - 4:.1f} {y:.1f}h4"/>'
        label = escape(cut_middle(text, _MOST_LABEL))
        yield f"<text x={x - 7:.1f} y={y + 4:.1f} class=end>{label}</text>"
