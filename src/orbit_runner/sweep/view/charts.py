"""The charts of a sweep: the objective by trial, by setting and by step."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from orbit_runner.config.serialize import inline_yaml
from orbit_runner.errors import cut_at_word
from orbit_runner.reporting.document import (
    SHADES,
    Chart,
    Parallel,
    ParallelAxis,
    Series,
)
from orbit_runner.reporting.svg import cut_middle
from orbit_runner.run_directory.metric_records import MetricLog
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.sweep.results import SweepResults, TrialResult
from orbit_runner.sweep.run_state import file_version
from orbit_runner.sweep.view.trials import (
    SweptSetting,
    objective_text,
    settings_text,
    swept_settings,
    value_text,
)

# Values of one category are drawn beside each other, at multiples of the golden ratio, so that
# trials with the same value do not hide each other.
_GOLDEN = 0.618034
_FAILED = ("diverged", "failed")
_BEST = 1  # the color of the best trial in all charts
_MOST_LABEL, _MOST_TITLE, _MOST_KEY = 12, 36, 60  # characters


def parallel_coordinates(results: SweepResults) -> Parallel:
    """Returns a line for each trial through its settings and its objective."""
    drawn = [
        trial
        for trial in reversed(results.ranked)  # The best one last, above the others.
        if trial.status in _FAILED or (trial.status != "pending" and trial.objective is not None)
    ]
    values = [value for trial in drawn if (value := trial.objective) is not None]
    order = sorted(values, reverse=results.mode == "max")
    settings = swept_settings(results)
    series = []
    for trial in drawn:
        value = trial.objective
        points = dict(enumerate(_place(setting, trial) for setting in settings))
        if value is not None:
            points[len(settings)] = value
        name = f"trial {trial.number}, {trial.status}: {objective_text(trial)} "
        shade = 0 if value is None else order.index(value) * SHADES // len(order)
        best = len(settings) if trial is results.best else None
        series.append(Series(name + settings_text(trial, results), points, shade, best=best))
    axes = [
        ParallelAxis(s.name, s.path, s.is_log, [*map(value_text, s.categories)]) for s in settings
    ]
    objective = ParallelAxis(results.objective_name, results.metric)
    return Parallel(
        "Settings and objective of each trial",
        [*axes, objective],
        series,
        best="best trial",
        lost="diverged or failed",
    )


def trials_chart(results: SweepResults) -> Chart:
    """Returns the objective of each trial by its number, with a line for the best so far."""
    best: dict[int, float] = {}
    better = min if results.mode == "min" else max
    for trial in results.trials:
        value = trial.objective if trial.status == "finished" else None
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
            [*_points(results, functools.partial(_place, setting))],
            x_label=cut_middle(setting.path, _MOST_TITLE),
            is_x_log=setting.is_log,
            places=[cut_middle(value_text(value), _MOST_LABEL) for value in setting.categories],
        )


def _place(setting: SweptSetting, trial: TrialResult) -> float:
    """Returns the number of a trial's value, or its place among the categories, from 0."""
    value = trial.settings[setting.path]
    if not setting.categories:
        return float(value)
    aside = (trial.number * _GOLDEN) % 1.0 - 0.5
    return [*map(inline_yaml, setting.categories)].index(inline_yaml(value)) + aside / 2


def _metric(results: SweepResults) -> str:
    return results.metric.replace("_", " ")


def _points(results: SweepResults, x_of: Callable[[TrialResult], float]) -> Iterator[Series]:
    """Yields a point for each trial and the range of its seeds; the best trial is the last."""
    drawn = [trial for trial in results.trials if trial.status != "pending"]
    for trial in sorted(drawn, key=lambda trial: trial is results.best):
        value = trial.objective
        x = x_of(trial)
        points = {x: math.nan if value is None else value}
        seeds = trial.objectives if value is not None else []
        band = {x: (min(seeds), max(seeds))} if len(seeds) > 1 else {}
        if trial is results.best:
            yield Series("best trial", points, _BEST, band=band, best=x)
            continue
        text = f"{results.metric} {objective_text(trial)} at step {trial.step:,}"
        hint = f"trial {trial.number}, {trial.status}: {text} {settings_text(trial, results)}"
        yield Series(hint, points, band=band, quiet=True)


# Of the best trials; the others are gray. The best one is orange, as in the other charts.
_COLORS = (1, 0, 2, 3, 4)
Points = Mapping[int, float]


def objective_curves(directory: Path, results: SweepResults) -> Chart:
    """Returns a chart of the objective by step with a line for each trial."""
    order = results.ranked
    colors = {
        trial.number: color
        for trial, color in zip(order, _COLORS, strict=False)
        if trial.objective is not None
    }
    lines = [
        Series(
            cut_at_word(f"trial {trial.number} {settings_text(trial, results)}", _MOST_KEY),
            _mean(_seed_curves(directory, trial, results.metric)),
            colors.get(trial.number, 0),
            quiet=trial.number not in colors,
        )
        for trial in reversed(order)  # The best ones are drawn last, above the others.
    ]
    marks = dict.fromkeys(rungs(results), "rung")
    drawn = [line for line in lines if line.points]
    return Chart(f"{results.metric.replace('_', ' ')} by step", drawn, marks=marks)


def rungs(results: SweepResults) -> Sequence[int]:
    """Returns the steps at which successive halving stops trials; empty for other sweeps."""
    halving = results.search.get("halving")
    steps = halving.get("rungs") if isinstance(halving, Mapping) else None
    return [step for step in steps or () if isinstance(step, int)]


def _seed_curves(directory: Path, trial: TrialResult, metric: str) -> list[Points]:
    files = [RunDirectory(directory / run.directory).metrics for run in trial.runs]
    curves = [_read_objective(file, metric, file_version(file)) for file in files]
    return [points for points in curves if points]


# The page is written each time a trial ends, and most records have not changed since.
@functools.lru_cache(maxsize=4096)
def _read_objective(path: Path, metric: str, version: tuple[int, ...]) -> Points:
    curves = MetricLog(path).curves()[0]
    return curves.get(("validation", metric)) or curves.get(("train", metric)) or {}


def _mean(curves: Sequence[Points]) -> dict[int, float]:
    """Returns the mean at each step that all curves have."""
    return {
        step: statistics.fmean(curve[step] for curve in curves)
        for step in (curves[0] if curves else ())
        if all(step in curve for curve in curves)
    }
