"""The results of a sweep in `sweep.json`, without times, so that two sweeps can be compared.

Written in the order of trial numbers. Two sweeps of the same file write the same bytes, whatever
was killed and however many workers there were.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from orbit_runner.config.serialize import short_setting_names

RESULTS_FILE = "sweep.json"
# `stopped` trials were not kept by successive halving. `pending` trials have not ended yet.
TRIAL_STATUSES = ("finished", "stopped", "diverged", "failed", "pending")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SeedResult:
    """The run of one seed of a trial.

    Attributes:
        seed: `runtime.seed` of the run.
        directory: The run directory, relative to that of the sweep.
        status: One of `TRIAL_STATUSES`.
        step: The last step that the run trained.
        objective: The objective at that step, or the best one up to it; None if the run has none.
        weights: SHA-256 of the weights at that step; "" before the first checkpoint.
        objective_step: The step of the objective, if the sweep compares best values.
    """

    seed: int
    directory: str
    status: str
    step: int
    objective: float | None
    weights: str
    objective_step: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrialResult:
    """A trial: its settings, and the result of each of its seeds.

    Attributes:
        number: The number of the trial, from 0.
        settings: The value of each setting of the space, by dotted path.
        status: One of `TRIAL_STATUSES`: the worst of its seeds.
        runs: The result of each seed, in the order of the sweep's seeds.
    """

    number: int
    settings: Mapping[str, Any]
    status: str
    runs: Sequence[SeedResult]

    @property
    def step(self) -> int:
        """The last step that all seeds trained."""
        return min((run.step for run in self.runs), default=0)

    @property
    def objectives(self) -> list[float]:
        """The objective of each seed that has one."""
        return [run.objective for run in self.runs if run.objective is not None]

    @property
    def objective(self) -> float | None:
        """The mean of the seeds' objectives; None unless each seed has a finite one."""
        objectives = self.objectives
        if not objectives or len(objectives) < len(self.runs):
            return None
        return statistics.fmean(objectives) if all(map(math.isfinite, objectives)) else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepResults:
    """A sweep and its trials, in the order of their numbers.

    Attributes:
        experiment: The name of the experiment.
        metric: The metric of the objective.
        mode: "max" or "min".
        space: The space as the sweep file has it, by dotted path.
        search: The search as the sweep file has it.
        seeds: `runtime.seed` of each run of a trial.
        train_steps: The step at which a trial ends; 0 if it follows from `train_epochs`.
        trials: The trials.
        value: "last" or "best": which value of the metric is the objective of a run.
    """

    experiment: str
    metric: str
    mode: str
    space: Mapping[str, Any]
    search: Mapping[str, object]
    seeds: Sequence[int]
    train_steps: int
    trials: Sequence[TrialResult]
    value: str = "last"

    @property
    def objective_name(self) -> str:
        """The metric, such as `accuracy`, or `best accuracy` if the best value counts."""
        return self.metric if self.value == "last" else f"best {self.metric}"

    @functools.cached_property
    def setting_names(self) -> dict[str, str]:
        """The short name of each setting of the space, by dotted path."""
        return short_setting_names(self.space)

    def rank_key(self, trial: TrialResult) -> tuple[float, float, float]:
        """Returns a key that orders trials from best to worst; those without a result are equal."""
        value = trial.objective
        worse = math.inf if value is None else value if self.mode == "min" else -value
        if trial.status == "finished":
            return (0, 0, worse)
        return (1, -trial.step, worse) if trial.status == "stopped" else (2, 0, 0)

    @functools.cached_property
    def ranked(self) -> list[TrialResult]:
        """The finished trials from best to worst, then the stopped ones, then the others.

        A trial that was stopped at a later step is ahead of those that were stopped earlier.
        """

        def key(trial: TrialResult) -> tuple[float, ...]:
            rank = self.rank_key(trial)
            return (*rank, TRIAL_STATUSES.index(trial.status), trial.number)

        return sorted(self.trials, key=key)

    @property
    def best(self) -> TrialResult | None:
        """The finished trial with the best finite objective, the first one of equals."""
        first = self.ranked[0] if self.trials else None
        has_won = first is not None and first.status == "finished" and first.objective is not None
        return first if has_won else None

    def to_json(self) -> str:
        """Returns the text of `sweep.json`."""
        values = dataclasses.asdict(self)
        for trial, trial_values in zip(self.trials, values["trials"], strict=True):
            trial_values["objective"] = trial.objective
        best = self.best
        values["best"] = None if best is None else best.number
        return json.dumps(values, indent=2) + "\n"
