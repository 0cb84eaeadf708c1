"""The content of a sweep file: experiment, space, objective, search and seeds."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from orbit_runner.sweep.search.space import Space

MODES = ("max", "min")
# The value of the metric that is the objective of a run: of its last evaluation, or the best one.
VALUES = ("last", "best")
SEARCHES = ("random", "grid", "tpe", "cma_es")
# Searches that learn from results, in batches.
LEARNING = ("tpe", "cma_es")


@dataclasses.dataclass(frozen=True)
class Halving:
    """Successive halving: at each rung, only the best trials continue.

    Attributes:
        rungs: Steps, ascending.
        keep: The fraction of the trials that continues after each rung.
    """

    rungs: tuple[int, ...]
    keep: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Search:
    """How the settings of trials are chosen.

    Attributes:
        type: One of `SEARCHES`.
        trials: The number of trials.
        seed: The seed of the draws.
        batch: The number of trials that a search proposes before it needs their results.
        halving: Successive halving; None to train all trials to the end.
    """

    type: str
    trials: int
    seed: int = 0
    batch: int = 4
    halving: Halving | None = None

    @property
    def learns(self) -> bool:
        """Whether the settings of a trial depend on the results of earlier ones."""
        return self.type in LEARNING


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepFile:
    """A sweep.

    Attributes:
        label: The name of the file, for messages.
        experiment: The experiment, as `--experiment` takes it.
        config_files: Files that override it, as `--config_file` takes them.
        overrides: Settings that override those files, in sections.
        space: The settings that vary, each after those that it depends on.
        metric: The validation metric of the objective.
        mode: "max" or "min".
        value: One of `VALUES`.
        search: How settings are chosen.
        seeds: `runtime.seed` of each run of a trial, or their number, counted from the seed of the
            experiment.
        description: What the sweep is about.
        values: The content of the file.
        lines: The line of each key of the file, by dotted path, and of each setting of the space
            and of the overrides.
    """

    label: str
    experiment: str
    config_files: tuple[str, ...]
    overrides: Mapping[str, Any]
    space: Space
    metric: str
    mode: str
    value: str
    search: Search
    seeds: int | tuple[int, ...]
    description: str
    values: Mapping[str, Any]
    lines: Mapping[str, int | None]

    def place(self, path: str) -> str:
        """Returns the file and line of a key."""
        line = self.lines.get(path)
        return self.label if line is None else f"{self.label}:{line}"
