"""Results of sweeps, for tests that need many trials without training them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from orbit_runner.sweep.results import SeedResult, SweepResults, TrialResult

RATE = "trainer.optimizer_config.learning_rate.constant.learning_rate"
UNITS = "task.model.hidden_units"
SPACE: Mapping[str, Any] = {
    RATE: {"log_uniform": [1e-4, 1e-1]},
    UNITS: [[64], [128, 64]],
}


def make_trial(
    number: int,
    settings: Mapping[str, Any],
    objectives: Sequence[float | None],
    *,
    status: str = "finished",
    step: int = 300,
) -> TrialResult:
    """Returns a trial with one run per objective; the seeds begin with 17."""
    directory = f"trials/{number:04}"
    runs = [
        SeedResult(
            seed=17 + index,
            directory=directory if len(objectives) == 1 else f"{directory}/seed-{17 + index}",
            status=status,
            step=step,
            objective=value,
            weights="ab" * 32 if status == "finished" else "",
        )
        for index, value in enumerate(objectives)
    ]
    return TrialResult(number=number, settings=settings, status=status, runs=runs)


def make_results(
    trials: Sequence[TrialResult],
    *,
    space: Mapping[str, Any] = SPACE,
    mode: str = "max",
    metric: str = "accuracy",
    **values: Any,
) -> SweepResults:
    """Returns the results of a sweep of `digits_mlp` with these trials."""
    known = {
        "experiment": "digits_mlp",
        "metric": metric,
        "mode": mode,
        "space": space,
        "search": {"type": "random", "trials": len(trials), "seed": 1},
        "seeds": sorted({run.seed for trial in trials for run in trial.runs}) or [17],
        "train_steps": 300,
        "trials": trials,
    }
    return SweepResults(**{**known, **values})


def learning_rate_sweep(
    count: int, *, seeds: int = 1, space: Mapping[str, Any] = SPACE
) -> SweepResults:
    """Returns finished trials whose accuracy is best in the middle of the learning rates.

    The networks alternate and have no effect.
    """
    trials = []
    for number in range(count):
        share = (number * 0.618034) % 1.0
        rate = 10 ** (-4 + 3 * share)
        accuracy = 0.95 - (share - 0.5) ** 2
        values = [accuracy + 0.003 * math.sin(7 * number + 3 * seed) for seed in range(seeds)]
        settings = {RATE: rate, UNITS: [[64], [128, 64]][number % 2]}
        trials.append(make_trial(number, settings, values))
    return make_results(trials, space=space)
