"""The current state of a sweep: its file and the changes since it began."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from orbit_runner.sweep.file.sweep_file import SweepFile


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sweep:
    """A sweep file, the experiment behind it, and the changes in `changes.jsonl`.

    Attributes:
        file: The sweep file.
        name: The name of the experiment.
        seeds: `runtime.seed` of each run of a trial.
        first_seeds: The number of seeds with which the sweep began.
        train_steps: The step at which a trial ends, then those that `--more_steps` added; (0,) if
            it follows from `trainer.train_epochs`.
        budgets: The number of trials, then the larger numbers of later extensions.
        excluded: The trials that `--exclude` leaves out of the results.
        forced: The trials that `--force` trains beyond every rung.
        machine_settings: Settings of the machine that the sweep sets for each trial.
    """

    file: SweepFile
    name: str
    seeds: tuple[int, ...]
    first_seeds: int
    train_steps: tuple[int, ...]
    budgets: tuple[int, ...]
    excluded: frozenset[int] = frozenset()
    forced: frozenset[int] = frozenset()
    machine_settings: tuple[tuple[str, int], ...] = ()

    @property
    def trials(self) -> int:
        """The number of trials."""
        return self.budgets[-1]

    @property
    def last_step(self) -> int:
        """The step at which a trial ends."""
        return self.train_steps[-1]

    @property
    def rungs(self) -> tuple[int, ...]:
        """The steps of successive halving."""
        halving = self.file.search.halving
        return halving.rungs if halving else ()

    def brackets(self) -> list[range]:
        """Returns the groups of trials that are compared with each other at a rung.

        They are the batches of a search that learns; otherwise, the first budget and each
        extension, so that finished trials stay finished.
        """
        search, found, first = self.file.search, [], 0
        for budget in self.budgets:
            size = search.batch if search.learns else budget - first
            while first < budget:
                found.append(range(first, min(first + size, budget)))
                first = found[-1].stop
        return found

    def run_name(self, number: int, seed: int) -> str:
        """Returns the name of a run in file names, such as `0007` or `0007-seed-18`."""
        if self.first_seeds == 1 and seed == self.seeds[0]:
            return f"{number:04d}"
        return f"{number:04d}-seed-{seed}"

    def run_directory(self, number: int, seed: int) -> str:
        """Returns the run directory of a trial and a seed, relative to that of the sweep."""
        if self.first_seeds == 1:
            return f"trials/{self.run_name(number, seed)}"
        return f"trials/{number:04d}/seed-{seed}"


def has_prefix(values: Sequence[int], first: Sequence[int]) -> bool:
    """Returns whether a sequence begins with another one."""
    return [*values[: len(first)]] == [*first]
