"""The objective of trials as points: by number of the trial, and by the value of a setting."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from html import escape

from orbit_runner.reporting.svg import (
    HEIGHT,
    LETTER,
    NARROW,
    Axis,
    cross,
    figure,
    left_room,
    step_labels,
    stretched,
    stretched_x,
    value_axis,
    value_grid,
    x_label,
    x_title,
)
from orbit_runner.sweep.results import SweepResults, TrialResult
from orbit_runner.sweep.view.ranking import (
    best_so_far,
    objective_of,
    objective_text,
    settings_text,
)
from orbit_runner.sweep.view.setting_axis import (
    SettingAxis,
    SweptSetting,
    cut_middle,
    setting_names,
)

_INSET = 4  # Between the frame and the first and last point, in percent.
_MOST_TITLE = 36  # characters of the title of an axis


def trials_chart(results: SweepResults) -> str:
    """Returns the objective of each trial by its number, with a line for the best so far."""
    trials = [trial for trial in results.trials if trial.status not in ("pending", "repeated")]
    if not trials or not _values(trials):
        return ""
    numbers = [trial.number for trial in trials]
    x_axis = Axis(min(numbers), max(numbers), _INSET, 100 - _INSET)
    y_axis = value_axis(results.metric, _values(trials))
    parts = [*value_grid(y_axis), *step_labels(x_axis), x_title("trial")]
    best = best_so_far(results)
    if best:
        parts.append(_steps([*best, (max(numbers), best[-1][1])], x_axis, y_axis))
    parts += _points(results, trials, lambda trial: x_axis.position(trial.number), y_axis)
    title = f"{results.metric.replace('_', ' ')} by trial{' (log)' if y_axis.log else ''}"
    keys = legend_keys(_kinds({trial.status for trial in trials}), "spot ")
    keys += legend_keys({"sofar": "best so far"})
    return figure(title, "Objective by trial", "".join(parts), left_room(y_axis), keys)


def legend_keys(kinds: Mapping[str, str], mark: str = "") -> str:
    """Returns the contents of a legend: a mark and its meaning for each kind."""
    return "".join(
        f'<span class="key {mark}key-{kind}">{escape(text)}</span>' for kind, text in kinds.items()
    )


def _kinds(statuses: Set[str]) -> dict[str, str]:
    kinds = {"best": "best trial", "q1": "finished"}
    if "stopped" in statuses:
        kinds["stopped"] = "stopped by halving"
    if statuses & {"diverged", "failed"}:
        kinds["lost"] = "diverged or failed"
    return kinds


def setting_chart(results: SweepResults, setting: SweptSetting) -> str:
    """Returns the objective of each trial by its value of a setting; "" without values."""
    trials = [
        trial
        for trial in results.trials
        if setting.path in trial.settings and trial.status not in ("pending", "repeated")
    ]
    if not _values(trials):
        return ""
    axis = SettingAxis(setting, trials, _INSET, 100 - _INSET)
    y_axis = value_axis(results.metric, _values(trials))
    room = int(axis.gap / 100 * NARROW / LETTER) - 1 if setting.categories else 12
    labels = [x_label(x, cut_middle(text, max(3, room)), text) for x, text in axis.ticks(NARROW)]
    parts = [*value_grid(y_axis), *labels, x_title(_end(setting.path), setting.path)]
    parts += _points(results, trials, axis.position, y_axis)
    name = f"{setting.name} (log)" if setting.is_log else setting.name
    label = f"Objective by {setting.path}"
    return figure(name, label, "".join(parts), left_room(y_axis))


def _end(path: str) -> str:
    """Returns a path, or as many of its last names as fit."""
    names = path.split(".")
    while len(names) > 1 and len(path) > _MOST_TITLE:
        del names[0]
        path = f"…{'.'.join(names)}"
    return cut_middle(path, _MOST_TITLE)


def _values(trials: Sequence[TrialResult]) -> list[float]:
    return [value for trial in trials if (value := objective_of(trial)) is not None]


def _points(
    results: SweepResults,
    trials: Sequence[TrialResult],
    x_of: Callable[[TrialResult], float | None],
    y_axis: Axis,
) -> Iterator[str]:
    """Yields a mark for each trial: a dot, a circle if it was stopped, a cross without a value."""
    best = results.best
    names = setting_names(results)
    last = [] if best is None else [best]
    for trial in [*(trial for trial in trials if trial is not best), *last]:
        x = x_of(trial)
        value = objective_of(trial)
        if x is None:
            continue
        text = f"{results.metric} {objective_text(trial)} at step {trial.step:,}"
        hint = (
            f"trial {trial.number}, {trial.status}: {text} {settings_text(trial.settings, names)}"
        )
        if value is None:
            yield cross(x, HEIGHT - 8, hint)
            continue
        yield from _range(trial, x, y_axis)
        kind = "best" if trial is best else "stopped" if trial.status == "stopped" else "trial"
        radius = 5 if trial is best else 3
        y = y_axis.position(value)
        yield f'<circle class={kind} cx="{x:.4g}%" cy="{y:.1f}" r="{radius}">'
        yield f"<title>{escape(hint)}</title></circle>"


def _range(trial: TrialResult, x: float, y_axis: Axis) -> Iterator[str]:
    """Yields a vertical line from the lowest to the highest objective of the seeds."""
    values = [value for value in trial.objectives if math.isfinite(value)]
    if len(values) > 1 and (not y_axis.log or min(values) > 0):
        low = min(HEIGHT, y_axis.position(min(values)))
        high = max(0.0, y_axis.position(max(values)))
        yield f'<line class=range x1="{x:.4g}%" x2="{x:.4g}%" y1="{low:.1f}" y2="{high:.1f}"/>'


def _steps(points: Sequence[tuple[int, float]], x_axis: Axis, y_axis: Axis) -> str:
    (first, value), *rest = points
    path = f"M{stretched_x(x_axis.position(first)):.1f} {y_axis.position(value):.1f}"
    for number, value in rest:
        path += f"H{stretched_x(x_axis.position(number)):.1f}V{y_axis.position(value):.1f}"
    return stretched([f'<path class=sofar d="{path}"/>'])
