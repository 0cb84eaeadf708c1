"""The trials of a sweep as texts: settings, objectives, and the lead of the best one."""

from __future__ import annotations

import dataclasses
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from orbit_runner.compare.statistics import estimate, estimate_text, paired_test, verdict
from orbit_runner.config.serialize import inline_yaml
from orbit_runner.errors import format_count
from orbit_runner.reporting.document import Table
from orbit_runner.sweep.directory import SweepDirectory
from orbit_runner.sweep.results import TRIAL_STATUSES, SweepResults, TrialResult


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


def swept_settings(results: SweepResults) -> list[SweptSetting]:
    """Returns the settings of which trials have at least two values."""
    swept = []
    for path, name in results.setting_names.items():
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


def train_again(directory: Path) -> str:
    """Returns the command that trains the best trial again, in a directory of its own."""
    config = shlex.quote(str(SweepDirectory(directory).best))
    return f"runner --experiment={config} --model_dir=runs/best"


def value_text(value: object) -> str:
    """Returns the value of a setting on one line; a float with four significant digits."""
    return f"{value:.4g}" if isinstance(value, float) else inline_yaml(value)


def settings_text(trial: TrialResult, results: SweepResults) -> str:
    """Returns settings under short names, such as `learning_rate=0.003 filters=[32, 64]`."""
    return " ".join(
        f"{name}={value_text(trial.settings[path])}"
        for path, name in results.setting_names.items()
        if path in trial.settings
    )


def objective_text(trial: TrialResult) -> str:
    """Returns the objective, such as `0.9713 ± 0.0021`; `-` if the trial has none."""
    return "-" if trial.objective is None else estimate_text(estimate(trial.objectives))


def status_counts(results: SweepResults) -> str:
    """Returns the number of trials of each status, such as `16 finished, 2 diverged`."""
    counts = Counter(trial.status for trial in results.trials)
    return ", ".join(f"{counts[status]} {status}" for status in TRIAL_STATUSES if counts[status])


def counts_text(results: SweepResults) -> str:
    """Returns the number of trials, such as `18 trials: 16 finished, 2 diverged`."""
    trials = format_count(len(results.trials), "trial")
    return f"{trials}: {status_counts(results)}" if results.trials else trials


def trial_table(results: SweepResults, trials: Sequence[TrialResult]) -> Table:
    """Returns a row for each trial: number, status, objective, settings, step and weights."""
    names = results.setting_names
    deviation = " (mean ± standard deviation)" if len(results.seeds) > 1 else ""
    head = ("trial", "status", f"{results.objective_name}{deviation}", *names.values())
    rows = [
        (
            str(trial.number),
            trial.status,
            objective_text(trial),
            *(value_text(trial.settings[p]) if p in trial.settings else "-" for p in names),
            f"{trial.step:,}",
            (trial.runs[0].weights[:12] if len(trial.runs) == 1 else "") or "-",
        )
        for trial in trials
    ]
    return Table(rows, (*head, "step", "weights"), right=(2, -2), fits=True)


def lead_text(results: SweepResults) -> str:
    """Returns a sentence on whether the lead of the best trial could be chance.

    It compares the seeds of which both the best and the next trial have an objective; "" if there
    are fewer than two.
    """
    finished = [trial for trial in results.ranked if trial.status == "finished"]
    if len(finished) < 2 or finished[1].objective is None:
        return ""
    best, second = finished[:2]
    values, others = (
        {run.seed: run.objective for run in trial.runs if run.objective is not None}
        for trial in (best, second)
    )
    seeds = [seed for seed in others if seed in values]
    if len(seeds) < 2:
        return ""
    test = paired_test([others[seed] for seed in seeds], [values[seed] for seed in seeds])
    return f"trial {best.number} against trial {second.number}, the next best: {verdict(test)}"
