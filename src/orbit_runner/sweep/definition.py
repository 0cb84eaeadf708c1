"""A sweep: its file, how it was extended, and the check against the experiment."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from orbit_runner.config.errors import ConfigError, Problem
from orbit_runner.config.resolve import Request, ResolvedConfig, resolve
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.serialize import inline_yaml
from orbit_runner.run_directory.config import flat_values
from orbit_runner.sweep.search import samples
from orbit_runner.sweep.sweep_file import SweepFile


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sweep:
    """A sweep file, the experiment behind it, and how the sweep was extended.

    Attributes:
        file: The sweep file.
        name: The name of the experiment.
        seeds: `runtime.seed` of each run of a trial.
        train_steps: The step at which a trial ends; 0 if it follows from `trainer.train_epochs`.
        budgets: The number of trials, then the larger numbers of later extensions.
        machine_settings: Settings of the machine that the sweep sets for each trial.
    """

    file: SweepFile
    name: str
    seeds: tuple[int, ...]
    train_steps: int
    budgets: tuple[int, ...]
    machine_settings: Mapping[str, int]

    @property
    def trials(self) -> int:
        """The number of trials."""
        return self.budgets[-1]

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
        search = self.file.search
        brackets = []
        first = 0
        for budget in self.budgets:
            size = search.batch if search.learns else budget - first
            while first < budget:
                brackets.append(range(first, min(first + size, budget)))
                first = brackets[-1].stop
        return brackets

    def run_name(self, number: int, seed: int) -> str:
        """Returns the name of a run in file names, such as `0007` or `0007-seed-18`."""
        return f"{number:04d}" if len(self.seeds) == 1 else f"{number:04d}-seed-{seed}"

    def run_directory(self, number: int, seed: int) -> str:
        """Returns the run directory of a trial and a seed, relative to that of the sweep."""
        trial = f"trials/{number:04d}"
        return trial if len(self.seeds) == 1 else f"{trial}/seed-{seed}"


# To plan a larger sweep would take minutes.
_MAX_RUNS = 100_000
# Set for each trial unless its config sets them: the number of threads may change the last bits,
# and must not depend on how many trials share the machine.
_THREADS = ("runtime.intra_op_threads", "runtime.inter_op_threads")


def resolve_base(file: SweepFile) -> ResolvedConfig:
    """Returns the experiment with its overrides. Raises ConfigError with the lines of the file."""
    return resolve(request_of(file, {}))


def check_space(file: SweepFile, base: ResolvedConfig) -> None:
    """Resolves the experiment with each value of a choice and both ends of each range.

    Raises ConfigError with all problems: unknown settings, wrong types, values out of bounds, too
    many runs, and rungs at which no trial is evaluated.
    """
    problems = [*_rung_problems(file, base.config)]
    # `resolve_base` has already reported problems that do not depend on the space.
    for settings in samples(file.space):
        try:
            resolve(request_of(file, settings))
        except ConfigError as error:
            problems += error.problems
    runs = file.search.trials * len(seeds_of(file, base.config))
    if runs > _MAX_RUNS:
        message = f"{file.search.trials} trials are {runs:,} runs, allowed: at most {_MAX_RUNS:,}"
        problems.append(Problem("seeds", message, file.origin("seeds"), code="conflict"))
    if not base.config.trainer.has_length:
        origin = file.origin("overrides")
        problems.append(
            Problem("trainer.train_steps", "is 0; set it in overrides", origin, code="not-set")
        )
    if problems:
        raise ConfigError(problems)


def new_sweep(file: SweepFile, base: ResolvedConfig) -> Sweep:
    """Returns the sweep as it begins."""
    return Sweep(
        file=file,
        name=base.config.name,
        seeds=seeds_of(file, base.config),
        train_steps=base.config.trainer.train_steps,
        budgets=(file.search.trials,),
        machine_settings={path: 1 for path in _THREADS if path not in base.origins},
    )


def seeds_of(file: SweepFile, config: ExperimentConfig) -> tuple[int, ...]:
    """Returns `runtime.seed` of each run of a trial."""
    if isinstance(file.seeds, int):
        return tuple(config.runtime.seed + index for index in range(file.seeds))
    return file.seeds


def request_of(file: SweepFile, settings: Mapping[str, object]) -> Request:
    """Returns the experiment with its overrides and the settings of a trial."""
    overrides = [
        (str(file.origin(f"overrides.{path}")), path, inline_yaml(value))
        for path, value in flat_values(file.overrides)
    ]
    varied = [(str(file.origin(path)), path, inline_yaml(v)) for path, v in settings.items()]
    return Request(
        experiment=file.experiment,
        config_files=file.config_files,
        flags=(*overrides, *varied),
        imports=file.imports,
    )


def _rung_problems(file: SweepFile, config: ExperimentConfig) -> Iterator[Problem]:
    halving = file.search.halving
    trainer = config.trainer
    if halving is None:
        return
    path = "search.halving.rungs"
    origin = file.origin(path)
    if not trainer.train_steps:
        message = "requires trainer.train_steps, and trainer.validation_interval in steps"
        yield Problem("search.halving", message, origin, "not-set")
        return
    beyond = [rung for rung in halving.rungs if rung >= trainer.train_steps]
    if beyond:
        message = (
            f"got {beyond[0]}, expected steps below trainer.train_steps, {trainer.train_steps}"
        )
        yield Problem(path, message, origin, "out-of-range")
    interval = trainer.validation_interval
    off = [rung for rung in halving.rungs if not interval or rung % interval]
    if off:
        message = (
            f"got {off[0]}, but trials are not evaluated at this step\n"
            f"expected multiples of trainer.validation_interval, {interval}"
        )
        yield Problem(path, message, origin, "not-divisible")
    for setting in ("trainer.train_steps", "trainer.validation_interval"):
        if setting in file.space:
            message = "cannot vary with search.halving, which compares trials at the same steps"
            yield Problem(f"space.{setting}", message, file.origin(setting), "conflict")
