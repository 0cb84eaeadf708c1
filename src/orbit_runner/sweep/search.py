"""The space of a sweep, and the searches that choose the settings of its trials.

In random and grid search, the settings of a trial do not depend on those of any other. TPE is that
of Optuna, with `ask` and `tell` in the order of trial numbers. Its state is not saved. It is
rebuilt by repeating `ask` and `tell`: the sampler is seeded, so the same results give the same
settings.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from orbit_runner.errors import RunnerError

if TYPE_CHECKING:
    from types import ModuleType

    import optuna

# Digits of drawn numbers: enough for any setting, and readable.
_DIGITS = 6


def round_significant(value: float) -> float:
    """Returns a number with six significant digits."""
    return float(f"{value:.{_DIGITS}g}")


@dataclasses.dataclass(frozen=True)
class Choice:
    """One of several values."""

    values: tuple[object, ...]

    def quantile(self, fraction: float) -> object:
        """Returns the value for a fraction from 0 to 1."""
        return self.values[min(int(fraction * len(self.values)), len(self.values) - 1)]

    def samples(self) -> list[object]:
        """Returns the values with which a config is checked."""
        return [*self.values]

    def grid(self) -> list[object]:
        """Returns the values that a grid search uses."""
        return [*self.values]


@dataclasses.dataclass(frozen=True)
class Range:
    """A number from `low` to `high`.

    Attributes:
        low: The smallest number.
        high: The largest number.
        log: Whether the logarithm of the number is uniform.
        is_integer: Whether the number is an integer.
    """

    low: float
    high: float
    log: bool = False
    is_integer: bool = False

    def quantile(self, fraction: float) -> float:
        """Returns the number for a fraction from 0 to 1."""
        if self.log:
            # Of integers, the ends are as likely as the others.
            margin = 0.5 if self.is_integer else 0.0
            low, high = math.log(self.low - margin), math.log(self.high + margin)
            return self.clip(math.exp(low + (high - low) * fraction))
        if self.is_integer:
            return self.clip(self.low + int(fraction * (self.high - self.low + 1)))
        return self.clip(self.low + (self.high - self.low) * fraction)

    def clip(self, value: float) -> float:
        """Rounds a number to an integer or to few digits, within the range."""
        rounded = round(value) if self.is_integer else round_significant(value)
        return min(max(rounded, self.low), self.high)

    def samples(self) -> list[float]:
        """Returns both ends."""
        return [self.low, self.high]

    def grid(self) -> list[int] | None:
        """Returns the values that a grid search uses: the integers of a linear scale, or None."""
        is_list = self.is_integer and not self.log
        return [*range(int(self.low), int(self.high) + 1)] if is_list else None


Values = Choice | Range
Space = Mapping[str, Values]  # by dotted path


def samples(space: Space) -> list[dict[str, object]]:
    """Returns settings in which each value of a choice and both ends of each range occur."""
    first = {path: values.samples()[0] for path, values in space.items()}
    changed = [
        {**first, path: value} for path, values in space.items() for value in values.samples()[1:]
    ]
    return [first, *changed]


MAX_GRID = 100_000


def draw(seed: int, number: int, path: str) -> float:
    """Returns a number in [0, 1) for a setting of a trial.

    It depends on nothing else, so a larger budget or another setting in the space changes no
    value that was drawn before.
    """
    digest = hashlib.sha256(f"{seed}:{number}:{path}".encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / 2**53


def random_settings(space: Space, seed: int, number: int) -> dict[str, object]:
    """Returns the settings of a trial of a random search."""
    return {path: values.quantile(draw(seed, number, path)) for path, values in space.items()}


def grid_settings(space: Space) -> list[dict[str, object]]:
    """Returns the settings of all trials of a grid search; the last setting varies fastest.

    Stops after `MAX_GRID` trials.
    """
    grids = [values.grid() or () for values in space.values()]
    combinations = itertools.islice(itertools.product(*grids), MAX_GRID)
    return [dict(zip(space, values, strict=True)) for values in combinations]


def select_best(objectives: Mapping[int, float | None], fraction: float, mode: str) -> list[int]:
    """Returns the trials that continue after a rung, in the order of their numbers.

    Args:
        objectives: The objective at the rung of each trial that was to reach it. None is worse than
            any number: the trial diverged or failed, or its objective is NaN or infinite.
        fraction: The part that is kept, rounded up.
        mode: "max" or "min".

    Returns:
        The best trials, the first ones of equals. Trials without an objective are never kept.
    """
    sign = 1 if mode == "min" else -1
    ranked = sorted(
        (sign * value, number)
        for number, value in objectives.items()
        if value is not None and math.isfinite(value)
    )
    return sorted(number for _, number in ranked[: count_kept(len(objectives), fraction)])


def count_kept(count: int, fraction: float) -> int:
    """Returns how many of `count` trials are kept: at least one."""
    # The product of 0.1 and 30 is a little more than 3.
    return max(1, math.ceil(round(count * fraction, 9)))


_NOT_INSTALLED = (
    "search.type: tpe requires optuna, which is not installed\n"
    "install it with `pip install 'orbit-runner[sweep]'`, or use `type: random`"
)


class OptunaSearch:
    """Proposes the settings of trials, and learns from their results.

    Args:
        space: The space.
        seed: The seed of the sampler.
        mode: "max" or "min".

    Raises:
        RunnerError: If optuna is not installed.
    """

    def __init__(self, space: Space, seed: int, mode: str) -> None:
        try:
            import optuna
        except ImportError:
            raise RunnerError(_NOT_INSTALLED, code="missing-package") from None
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._optuna: ModuleType = optuna
        self._space = space
        sampler = optuna.samplers.TPESampler(seed=seed)
        direction = "maximize" if mode == "max" else "minimize"
        self._study = self._optuna.create_study(sampler=sampler, direction=direction)
        self._trials: list[optuna.Trial] = []
        self.settings: list[dict[str, object]] = []  # of each trial that was asked for

    def ask(self) -> dict[str, object]:
        """Returns the settings of the next trial."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trial = self._study.ask()
            settings = {path: _suggest(trial, path, v) for path, v in self._space.items()}
        self._trials.append(trial)
        self.settings.append(settings)
        return settings

    def tell(self, number: int, objective: float | None, rung: int | None = None) -> None:
        """Reports the result of a trial. Must be called in the order of trial numbers.

        `objective` is None if the trial diverged, failed or has no number. `rung` is the step at
        which successive halving stopped the trial, or None.
        """
        trial = self._trials[number]
        state = self._optuna.trial.TrialState
        if objective is None or not math.isfinite(objective):
            self._study.tell(trial, state=state.FAIL)
        elif rung is not None:
            trial.report(objective, rung)
            self._study.tell(trial, state=state.PRUNED)
        else:
            self._study.tell(trial, objective)


def _suggest(trial: Any, path: str, values: Values) -> object:
    if isinstance(values, Choice):
        # By number: optuna compares and stores only scalars.
        return values.values[trial.suggest_categorical(path, [*range(len(values.values))])]
    if values.is_integer:
        return int(trial.suggest_int(path, values.low, values.high, log=values.log))
    return values.clip(trial.suggest_float(path, values.low, values.high, log=values.log))
