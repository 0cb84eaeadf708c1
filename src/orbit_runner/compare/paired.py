"""Compares runs with several seeds pair by pair, to tell a difference from chance.

Does not import TensorFlow.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence

from orbit_runner.compare.runs import (
    RunComparison,
    differing_settings,
    format_value,
    has_equal_weights,
)
from orbit_runner.compare.statistics import Estimate, PairedTest, estimate, paired_test
from orbit_runner.config.fingerprint import cannot_affect_weights
from orbit_runner.errors import RunnerError, format_list, nearest_name_hint
from orbit_runner.run_directory.run_reader import NON_METRICS, RunReader

SEED = "runtime.seed"
_ADVICE = "compare runs that differ only in runtime.seed, such as a trial of a sweep with seeds"
_MANY_METRICS = 3
_NOT_COMPARED = (*NON_METRICS, "learning_rate")


@dataclasses.dataclass(frozen=True)
class SeedGroup:
    """Runs that differ only in their seed."""

    name: str  # a short one to show
    runs: Mapping[int, RunReader]  # by `runtime.seed`


@dataclasses.dataclass(frozen=True)
class PairedMetric:
    """A metric of two groups."""

    name: str  # the metric of the last evaluation, or `best.` and that of the best evaluation
    first: Sequence[float]  # the value of each common seed in the first group, in order of seeds
    second: Sequence[float]  # the same in the second group

    @property
    def estimates(self) -> tuple[Estimate, Estimate]:
        """The mean of each group and its spread."""
        return estimate(self.first), estimate(self.second)

    @property
    def test(self) -> PairedTest:
        """The test whether second - first is more than chance."""
        return paired_test(self.first, self.second)


@dataclasses.dataclass(frozen=True)
class PairedComparison:
    """Two groups of runs with common seeds."""

    first: SeedGroup
    second: SeedGroup  # compared with the first
    seeds: Sequence[int]  # those that both have, in ascending order
    metrics: Sequence[PairedMetric]  # those that all runs of these seeds have

    def settings(self) -> dict[str, list[object]]:
        """Returns the settings that differ: dotted path to the value in each group."""
        return {path: row for path, row in self._pair().settings().items() if path != SEED}

    def software(self) -> dict[str, list[object]]:
        """Returns the versions and revisions that differ between the groups."""
        return self._pair().software()

    def has_equal_weights(self) -> bool:
        """Returns whether the runs of each seed have the same weights at the end."""
        pairs = [(self.first.runs[seed], self.second.runs[seed]) for seed in self.seeds]
        return all(has_equal_weights(*pair) for pair in pairs)

    def notes(self) -> Iterator[str]:
        """Yields what limits the comparison, as sentences without a period."""
        for group, other in ((self.first, self.second), (self.second, self.first)):
            unpaired_seeds = sorted(set(group.runs) - set(other.runs))
            if unpaired_seeds:
                yield f"not compared: {_seeds_text(unpaired_seeds)}, which only {group.name} has"
        if not self.settings():
            yield "no setting differs except the seed"
        if self.has_equal_weights():
            yield "the weights of each seed are equal"
        count = len(self.metrics)
        if count >= _MANY_METRICS:
            yield (
                f"{count} metrics were compared: one in 20 without any difference is more than "
                "chance at 5 %; choose the metric before you look, with --metric"
            )

    def _pair(self) -> RunComparison:
        groups = (self.first, self.second)
        return RunComparison(
            [group.runs[self.seeds[0]] for group in groups], [group.name for group in groups]
        )


def seed_group(name: str, runs: Sequence[RunReader]) -> SeedGroup:
    """Returns runs as a group. Raises RunnerError if they differ in more than their seed."""
    by_seed: dict[int, RunReader] = {}
    for run in runs:
        seed = _seed(run)
        if seed is None:
            raise RunnerError(
                f"{run.path} has no {SEED} in its config.yaml",
                path="--paired",
                code="not-comparable",
            )
        if seed in by_seed:
            raise RunnerError(
                f"{name} has two runs with {SEED} {seed}: "
                f"{by_seed[seed].path} and {run.path}\n{_ADVICE}",
                path="--paired",
                code="set-twice",
            )
        by_seed[seed] = run
    settings = differing_settings([run.settings for run in runs], ignored=("description", SEED))
    others = {path: row for path, row in settings.items() if not cannot_affect_weights(path)}
    if others:
        distinct = {path: dict.fromkeys(map(format_value, row)) for path, row in others.items()}
        rows = [f"{path}: {', '.join(values)}" for path, values in distinct.items()]
        raise RunnerError(
            f"the runs of {name} differ in more than their seed\n{format_list(rows)}\n{_ADVICE}",
            path="--paired",
            code="not-comparable",
        )
    return SeedGroup(name, by_seed)


def compare_paired(
    first: SeedGroup, second: SeedGroup, requested: Sequence[str] = ()
) -> PairedComparison:
    """Returns the comparison of two groups.

    Args:
        first: The group to compare with.
        second: The group that is compared.
        requested: The metrics to compare; empty for all.

    Raises:
        RunnerError: The groups have fewer than two seeds in common, or a metric is missing.
    """
    seeds = sorted(set(first.runs) & set(second.runs))
    if len(seeds) < 2:
        common = f"only {_seeds_text(seeds)}" if seeds else "no seed"
        raise RunnerError(
            f"{first.name} and {second.name} have {common} in common, "
            "allowed: at least 2\n"
            f"  {first.name}: {_seeds_text(sorted(first.runs))}\n"
            f"  {second.name}: {_seeds_text(sorted(second.runs))}\n"
            "train both with the same values of runtime.seed",
            path="--paired",
            code="not-comparable",
        )
    sides = [[_values(group.runs[seed]) for seed in seeds] for group in (first, second)]
    all_values = [values for side in sides for values in side]
    names = [
        name
        for name in dict.fromkeys(name for values in all_values for name in values)
        if all(math.isfinite(values.get(name, math.nan)) for values in all_values)
    ]
    for name in requested:
        if name not in names:
            raise RunnerError(
                f"not every run has a finite metric {name!r}{nearest_name_hint(name, names)}\n"
                f"allowed: {', '.join(names) or 'none; evaluate the runs first'}",
                path="--metric",
                code="unknown-name",
            )
    if not names:
        raise RunnerError(
            "the runs have no metric in common; evaluate them first",
            path="--paired",
            code="not-comparable",
        )
    metrics = [
        PairedMetric(name, *([values[name] for values in side] for side in sides))
        for name in (requested or names)
    ]
    return PairedComparison(first, second, seeds, metrics)


def _values(run: RunReader) -> dict[str, float]:
    """Returns the metrics of the last evaluation, and those of the best as `best.NAME`."""
    values = {f"best.{name}": value for name, value in run.best.items()}
    values = {**run.metrics, **values}
    return {
        name: v for name, v in values.items() if name.removeprefix("best.") not in _NOT_COMPARED
    }


def _seed(run: RunReader) -> int | None:
    seed = run.settings.get(SEED, run.seed)
    return seed if isinstance(seed, int) else None


def _seeds_text(seeds: Sequence[int]) -> str:
    text = ", ".join(map(str, seeds))
    return f"seed{'' if len(seeds) == 1 else 's'} {text}" if seeds else "no seed"
