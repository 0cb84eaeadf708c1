"""TPE and CMA-ES of Optuna, with `ask` and `tell` in the order of trial numbers.

The state of the search is not saved. It is rebuilt by repeating `ask` and `tell`: the samplers
are seeded, so the same results give the same settings.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import warnings
from typing import Any

from orbit_runner.errors import RunnerError
from orbit_runner.sweep.search.space import Choice, Integers, Space

_NOT_INSTALLED = (
    "search.type: {kind} requires optuna, which is not installed\n"
    "install it with `pip install 'orbit-runner[sweep]'`, or use `type: random`"
)


@dataclasses.dataclass(frozen=True)
class TrialOutcome:
    """The result of a trial.

    Attributes:
        objective: The objective; None if the trial diverged, failed or has no number.
        stopped_at: The rung at which the trial was stopped; None if it was not.
    """

    objective: float | None
    stopped_at: int | None = None


class OptunaSearch:
    """Proposes the settings of trials, and learns from their results.

    Args:
        kind: "tpe" or "cma_es".
        space: The space.
        seed: The seed of the sampler.
        mode: "max" or "min".

    Raises:
        RunnerError: If optuna is not installed.
    """

    def __init__(self, kind: str, space: Space, seed: int, mode: str) -> None:
        try:
            import optuna
        except ImportError:
            raise RunnerError(_NOT_INSTALLED.format(kind=kind)) from None
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._optuna: Any = optuna
        self._space = space
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # CMA-ES is experimental in optuna.
            sampler = _sampler(optuna, kind, seed)
        direction = "maximize" if mode == "max" else "minimize"
        self._study = self._optuna.create_study(sampler=sampler, direction=direction)
        self._trials: list[Any] = []
        self.settings: list[dict[str, Any]] = []  # of each trial that was asked for

    def ask(self) -> dict[str, Any]:
        """Returns the settings of the next trial."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trial = self._study.ask()
            settings: dict[str, Any] = {}
            for one in self._space:
                if one.is_active(settings):
                    settings[one.path] = _suggest(trial, one.path, one.values)
        self._trials.append(trial)
        self.settings.append(settings)
        return settings

    def tell(self, number: int, outcome: TrialOutcome) -> None:
        """Reports the result of a trial. Must be called in the order of trial numbers."""
        trial, state = self._trials[number], self._optuna.trial.TrialState
        objective = outcome.objective
        if objective is None or not math.isfinite(objective):
            self._study.tell(trial, state=state.FAIL)
        elif outcome.stopped_at is not None:
            trial.report(objective, outcome.stopped_at)
            self._study.tell(trial, state=state.PRUNED)
        else:
            self._study.tell(trial, objective)


def _sampler(optuna: Any, kind: str, seed: int) -> Any:
    samplers = optuna.samplers
    if kind == "tpe":
        return samplers.TPESampler(seed=seed)
    try:
        importlib.import_module("cmaes")  # Optuna imports it at the first trial.
    except ImportError:
        raise RunnerError(_NOT_INSTALLED.format(kind=kind).replace("optuna,", "cmaes,")) from None
    return samplers.CmaEsSampler(
        seed=seed,
        # For settings that are not numbers, or not always set.
        independent_sampler=samplers.RandomSampler(seed=seed),
        warn_independent_sampling=False,
    )


def _suggest(trial: Any, path: str, values: Any) -> Any:
    if isinstance(values, Choice):
        # By number: optuna compares and stores only scalars.
        return values.values[trial.suggest_categorical(path, [*range(len(values.values))])]
    if isinstance(values, Integers):
        step = {} if values.log else {"step": values.step}
        return int(
            trial.suggest_int(path, values.low, values.quantile(1.0), log=values.log, **step)
        )
    return values.clip(trial.suggest_float(path, values.low, values.high, log=values.log))
