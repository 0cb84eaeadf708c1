"""The objective of trials as points: by number of the trial, and by the value of a setting."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator

from orbit_runner.reporting.document import Chart, Series
from orbit_runner.sweep.results import SweepResults, TrialResult
from orbit_runner.sweep.view.ranking import (
    objective_of,
    objective_text,
    settings_text,
)
from orbit_runner.sweep.view.setting_axis import (
    cut_middle,
    place,
    setting_names,
    swept_settings,
    value_text,
)

_BEST = 1  # the color of the best trial in all charts
_MOST_LABEL, _MOST_TITLE = 12, 36  # characters


def trials_chart(results: SweepResults) -> Chart:
    """Returns the objective of each trial by its number, with a line for the best so far."""
    best: dict[int, float] = {}
    better = min if results.mode == "min" else max
    for trial in results.trials:
        value = objective_of(trial) if trial.status == "finished" else None
        known = [v for v in (value, *[*best.values()][-1:]) if v is not None]
        if known:
            best[trial.number] = better(known)
    series = [Series("best so far", best, quiet=True), *_points(results, lambda t: t.number)]
    return Chart(f"{_metric(results)} by trial", series, x_label="trial")


def setting_charts(results: SweepResults) -> Iterator[Chart]:
    """Yields the objective of each trial by its value of each setting."""
    for setting in swept_settings(results):
        yield Chart(
            f"{_metric(results)} by {setting.name}",
            [*_points(results, functools.partial(place, setting))],
            x_label=_end(setting.path),
            is_x_log=setting.is_log,
            places=[cut_middle(value_text(value), _MOST_LABEL) for value in setting.categories],
        )


def _metric(results: SweepResults) -> str:
    return results.metric.replace("_", " ")


def _end(path: str) -> str:
    """Returns a path, or as many of its last names as fit."""
    names = path.split(".")
    while len(names) > 1 and len(path) > _MOST_TITLE:
        del names[0]
        path = f"…{'.'.join(names)}"
    return cut_middle(path, _MOST_TITLE)


def _points(results: SweepResults, x_of: Callable[[TrialResult], float]) -> Iterator[Series]:
    """Yields a point for each trial; the best one is the last, above the others."""
    names = setting_names(results)
    drawn = [trial for trial in results.trials if trial.status != "pending"]
    for trial in sorted(drawn, key=lambda trial: trial is results.best):
        value = objective_of(trial)
        x = x_of(trial)
        points = {x: math.nan if value is None else value}
        if trial is results.best:
            yield Series("best trial", points, _BEST, best=x)
            continue
        text = f"{results.metric} {objective_text(trial)} at step {trial.step:,}"
        hint = (
            f"trial {trial.number}, {trial.status}: {text} {settings_text(trial.settings, names)}"
        )
        yield Series(hint, points, quiet=True)
