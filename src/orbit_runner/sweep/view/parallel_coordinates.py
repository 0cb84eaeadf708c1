"""Parallel coordinates: an axis for each setting and one for the objective, a line for each trial.

Lines are darker (in dark mode: lighter) the better the rank of the trial is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from orbit_runner.reporting.svg import (
    LARGEST,
    LETTER,
    escape,
    stretched,
    stretched_x,
    value_axis,
)
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
_SPACE = 150  # between two axes, at least
_TOP, _BOTTOM = 26, 290
_HEIGHT = 300  # without the place of trials that lack a value
_LEFT, _RIGHT = 86, 76
_NONE = 312  # Where lines of trials go that lack the objective.
_MOST_LABEL = 11  # characters
_MOST_NAME = 21  # characters: `validation_loss (log)` fits
_MANY = 60  # Lines are fainter if there are more.
_FAILED = ("diverged", "failed")


def parallel_coordinates(results: SweepResults) -> str:
    """Returns the chart as a figure; "" if no setting differs between trials with a value."""
    drawn = [
        trial
        for trial in reversed(rank_trials(results))  # The best one last, above the others.
        if trial.status in _FAILED
        or (objective_of(trial) is not None and trial.status != "pending")
    ]
    values = [value for trial in drawn if (value := _drawn_value(trial)) is not None]
    settings = swept_settings(results)
    if not values or not settings:
        return ""
    space = 100 / len(settings)
    axes = [SettingAxis(setting, drawn, _BOTTOM, _TOP) for setting in settings]
    lines: list[str] = []
    objective = _ObjectiveAxis(results, values)
    for trial in drawn:
        ys = [*(axis.position(trial) for axis in axes), objective.position(trial)]
        points = [(stretched_x(space * n), y) for n, y in enumerate(ys)]
        lines.append(_line(trial, points, _kind(trial, results, objective), results))
    lacks_value = len(values) < len(drawn)
    height = _NONE + 12 if lacks_value else _HEIGHT
    parts = [stretched(lines, height)]
    for n, (setting, axis) in enumerate(zip(settings, axes, strict=True)):
        title = f"{setting.name} (log)" if setting.is_log else setting.name
        parts += _axis(space * n, title, setting.path, axis.ticks())
    note = "no value" if lacks_value else ""
    title = f"{results.objective_name} (log)" if objective.is_log else results.objective_name
    parts += _axis(100, title, results.metric, objective.ticks(), note)
    kind = '"wide many"' if len(drawn) > _MANY else "wide"
    keys = {"best": "best trial", "q0": "best sixth", "q5": "worst sixth"}
    if lacks_value:
        keys["lost"] = "diverged or failed"
    least = _LEFT + _RIGHT + _SPACE * len(settings)
    return (
        f"<figure><div class={kind}>"
        f'<div style="padding:0 {_RIGHT}px 0 {_LEFT}px;min-width:{least}px">'
        f'<svg style="height:{height}px;overflow:visible" '
        f'role="img" aria-label="Settings and objective of each trial">{"".join(parts)}</svg>'
        f"</div></div><div class=legend>{_legend_keys(keys)}</div></figure>"
    )


def _drawn_value(trial: TrialResult) -> float | None:
    """Returns the objective of a trial; None if it has none, or if it is too large for an axis."""
    value = objective_of(trial)
    return value if value is not None and abs(value) <= LARGEST else None


class _ObjectiveAxis:
    """The last axis, and the shade of each value by its rank."""

    def __init__(self, results: SweepResults, values: Sequence[float]) -> None:
        self._axis = value_axis(results.metric, values, _BOTTOM - _TOP)
        self._order = sorted(values, reverse=results.mode == "max")
        self.is_log = self._axis.log

    def position(self, trial: TrialResult) -> float:
        value = _drawn_value(trial)
        return _NONE if value is None else _TOP + self._axis.position(value)

    def ticks(self) -> list[tuple[float, str]]:
        return [(_TOP + y, text) for y, text in self._axis.ticks()]

    def shade(self, value: float) -> int:
        """Returns 0 for the best trials, up to `SHADES` - 1 for the worst."""
        return self._order.index(value) * SHADES // len(self._order)


def _kind(trial: TrialResult, results: SweepResults, objective: _ObjectiveAxis) -> str:
    value = _drawn_value(trial)
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
    x: float, title: str, path: str, ticks: Sequence[tuple[float, str]], note: str = ""
) -> Iterator[str]:
    yield f'<svg x="{x:.4g}%" overflow=visible><path class=axis d="M0 {_TOP}V{_BOTTOM}"/>'
    yield (
        f'<text y=12 class="mid name">{escape(cut_middle(title, _MOST_NAME))}'
        f"<title>{escape(path)}</title></text>"
    )
    for y, text in [*ticks, *([(float(_NONE), note)] if note else [])]:
        label = cut_middle(text, _MOST_LABEL)
        width = LETTER * len(label)
        if x == 100:  # There are no lines to the right of the last axis.
            yield f'<path class=axis d="M4 {y:.1f}h-4"/>'
            yield f"<text x=7 y={y + 4:.1f}>{escape(label)}</text>"
            continue
        yield f'<path class=axis d="M-4 {y:.1f}h4"/>'
        # Lines of trials do not cross the label.
        yield f'<rect class=back x="{-9 - width:.0f}" y="{y - 8:.1f}" width="{width + 4:.0f}" '
        yield f'height="16"/><text x=-7 y={y + 4:.1f} class=end>{escape(label)}</text>'
    yield "</svg>"


def _legend_keys(kinds: Mapping[str, str]) -> str:
    """Returns the contents of a legend: a mark and its meaning for each kind."""
    return "".join(
        f'<span class="key key-{kind}">{escape(text)}</span>' for kind, text in kinds.items()
    )
