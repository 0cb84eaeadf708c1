"""The order of the trials of a sweep, and how far the best one is ahead."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from orbit_runner.compare.statistics import (
    Estimate,
    PairedTest,
    estimate,
    estimate_text,
    paired_test,
    verdict,
)
from orbit_runner.reporting.document import Table
from orbit_runner.sweep.results import TRIAL_STATUSES, SweepResults, TrialResult
from orbit_runner.sweep.view.setting_axis import setting_names, value_text

_LAST = tuple(status for status in TRIAL_STATUSES if status not in ("finished", "stopped"))


def objective_of(trial: TrialResult) -> float | None:
    """Returns the objective of a trial; None if it has none or if it is not finite."""
    value = trial.objective
    return value if value is not None and math.isfinite(value) else None


def rank_trials(results: SweepResults) -> list[TrialResult]:
    """Returns the trials: finished ones from best to worst, then stopped ones, then the others.

    A trial that was stopped at a later step is ahead of those that were stopped earlier.
    """

    def key(trial: TrialResult) -> tuple[float, ...]:
        last = _LAST.index(trial.status) if trial.status in _LAST else 0
        return (*rank_key(trial, results.mode), last, trial.number)

    return sorted(results.trials, key=key)


def rank_key(trial: TrialResult, mode: str) -> tuple[float, float, float]:
    """Returns a key that orders trials from best to worst; trials without a result are equal."""
    value = objective_of(trial)
    worse = math.inf if value is None else value if mode == "min" else -value
    if trial.status == "finished":
        return (0, 0, worse)
    return (1, -trial.step, worse) if trial.status == "stopped" else (2, 0, 0)


def status_counts(results: SweepResults) -> str:
    """Returns the number of trials of each status, such as `16 finished, 2 diverged`."""
    counts = Counter(trial.status for trial in results.trials)
    return ", ".join(f"{counts[status]} {status}" for status in TRIAL_STATUSES if counts[status])


def objective_estimate(trial: TrialResult) -> Estimate | None:
    """Returns the objective over the seeds; None if it is missing or not finite for a seed."""
    return None if objective_of(trial) is None else estimate(trial.objectives)


def objective_text(trial: TrialResult) -> str:
    """Returns the objective, such as `0.9713 ± 0.0021`; `-` if the trial has none."""
    objective = objective_estimate(trial)
    if objective is None:
        return "-"
    return estimate_text(objective)


def settings_text(settings: Mapping[str, object], names: Mapping[str, str]) -> str:
    """Returns settings under short names, such as `learning_rate=0.003 filters=[32, 64]`."""
    return " ".join(
        f"{name}={value_text(settings[path])}" for path, name in names.items() if path in settings
    )


def trial_table(results: SweepResults, trials: Sequence[TrialResult]) -> Table:
    """Returns a row for each trial: number, status, objective, settings, step and weights."""
    names = setting_names(results)
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


def runner_up_test(results: SweepResults) -> tuple[TrialResult, TrialResult, PairedTest] | None:
    """Returns the best trial, the next one, and their comparison; None with fewer than two seeds.

    Only the seeds of which both have an objective are compared.
    """
    finished = [
        trial
        for trial in rank_trials(results)
        if trial.status == "finished" and objective_of(trial) is not None
    ][:2]
    if len(finished) < 2:
        return None
    best, second = finished
    second_objectives, best_objectives = (_objectives_by_seed(trial) for trial in (second, best))
    seeds = [seed for seed in second_objectives if seed in best_objectives]
    if len(seeds) < 2:
        return None
    test = paired_test(
        [second_objectives[seed] for seed in seeds], [best_objectives[seed] for seed in seeds]
    )
    return best, second, test


def lead_text(results: SweepResults) -> str:
    """Returns a sentence on whether the lead of the best trial could be chance; "" if unknown."""
    comparison = runner_up_test(results)
    if comparison is None:
        return ""
    best, second, test = comparison
    return f"trial {best.number} against trial {second.number}, the next best: {verdict(test)}"


def _objectives_by_seed(trial: TrialResult) -> dict[int, float]:
    return {run.seed: run.objective for run in trial.runs if run.objective is not None}
