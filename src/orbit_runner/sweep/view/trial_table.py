"""Trials as lines of a table, for terminals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orbit_runner.sweep.results import SweepResults, TrialResult
from orbit_runner.sweep.view.ranking import objective_text
from orbit_runner.sweep.view.setting_axis import (
    cut_middle,
    setting_names,
    swept_settings,
    value_text,
)
from orbit_runner.utils.text_table import table_lines

_MOST_VALUE = 18  # characters of a value


def trial_lines(
    results: SweepResults,
    trials: Sequence[TrialResult],
    width: int,
    *,
    running: Mapping[int, str] | None = None,
    interval: bool = False,
) -> list[str]:
    """Returns a line of titles and a line for each trial; lines that are too long are cut.

    Args:
        results: The sweep.
        trials: The trials to show, in this order.
        width: The number of characters in a line.
        running: What the trials that are being trained do, by their number.
        interval: Whether to show the confidence interval of the objective.
    """
    swept = {one.path for one in swept_settings(results)}
    paths = [path for path in setting_names(results) if path in swept or not swept]
    names = setting_names(results)
    best = results.best
    rows = [
        ["", "trial", "status", "step", results.objective_name, *(names[path] for path in paths)]
    ]
    rows += [
        [
            "*" if best is not None and trial.number == best.number else "",
            str(trial.number),
            (running or {}).get(trial.number, trial.status) or "running",
            f"{trial.step:,}",
            objective_text(trial, interval=interval),
            *(_value(trial, path) for path in paths),
        ]
        for trial in trials
    ]
    lines = table_lines(rows, right=(1, 3))  # trial and step
    return [line if len(line) <= width else f"{line[: width - 1]}…" for line in lines]


def _value(trial: TrialResult, path: str) -> str:
    if path not in trial.settings:
        return "-"
    return cut_middle(value_text(trial.settings[path]), _MOST_VALUE)
