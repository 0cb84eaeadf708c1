"""Checks a sweep file against the experiment before training. Does not import TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from orbit_runner.config.errors import ConfigError, Origin, Problem
from orbit_runner.config.resolve import Request, ResolvedConfig, resolve
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.serialize import inline_yaml
from orbit_runner.sweep.definition import Sweep
from orbit_runner.sweep.file.sweep_file import SweepFile
from orbit_runner.sweep.search.space import samples

# To plan a larger sweep would take minutes.
_MAX_RUNS = 100_000
# Set for each trial unless its config sets them: the number of threads may change the last bits,
# and must not depend on how many trials share the machine.
_THREADS = ("runtime.intra_op_threads", "runtime.inter_op_threads")


def resolve_base(file: SweepFile, imports: tuple[str, ...] = ()) -> ResolvedConfig:
    """Returns the experiment with its overrides. Raises ConfigError with the lines of the file."""
    return resolve(request_of(file, {}, imports))


def check_space(file: SweepFile, base: ResolvedConfig, imports: tuple[str, ...] = ()) -> None:
    """Resolves the experiment with each value of a choice and both ends of each range.

    Raises ConfigError with all problems: unknown settings, wrong types, values out of bounds, too
    many runs, and rungs at which no trial is evaluated.
    """
    problems = [*_rung_problems(file, base.config)]
    # `resolve_base` has already reported problems that do not depend on the space.
    for settings in samples(file.space):
        try:
            resolve(request_of(file, settings, imports))
        except ConfigError as error:
            problems += error.problems
    runs = file.search.trials * len(seeds_of(file, base.config))
    if runs > _MAX_RUNS:
        message = f"{file.search.trials} trials are {runs:,} runs, allowed: at most {_MAX_RUNS:,}"
        problems.append(Problem("seeds", message, Origin(file.place("seeds"))))
    if not base.config.trainer.has_length:
        origin = Origin(file.place("overrides"))
        problems.append(Problem("trainer.train_steps", "is 0; set it in overrides", origin))
    if problems:
        raise ConfigError(problems)


def new_sweep(file: SweepFile, base: ResolvedConfig) -> Sweep:
    """Returns the sweep as it begins."""
    seeds = seeds_of(file, base.config)
    return Sweep(
        file=file,
        name=base.config.name,
        seeds=seeds,
        first_seeds=len(seeds),
        train_steps=(base.config.trainer.train_steps,),
        budgets=(file.search.trials,),
        machine_settings=tuple((path, 1) for path in _THREADS if path not in base.origins),
    )


def seeds_of(file: SweepFile, config: ExperimentConfig) -> tuple[int, ...]:
    """Returns `runtime.seed` of each run of a trial."""
    if isinstance(file.seeds, int):
        return tuple(config.runtime.seed + index for index in range(file.seeds))
    return file.seeds


def request_of(file: SweepFile, settings: Mapping[str, Any], imports: tuple[str, ...]) -> Request:
    """Returns the experiment with its overrides and the settings of a trial."""
    overrides = [
        (file.place(f"overrides.{path}"), path, inline_yaml(value))
        for path, value in _leaves(file.overrides)
    ]
    varied = [(file.place(path), path, inline_yaml(value)) for path, value in settings.items()]
    return Request(
        experiment=file.experiment,
        config_files=file.config_files,
        flags=(*overrides, *varied),
        imports=imports,
    )


def _leaves(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _rung_problems(file: SweepFile, config: ExperimentConfig) -> Iterator[Problem]:
    halving, trainer = file.search.halving, config.trainer
    if halving is None:
        return
    path = "search.halving.rungs"
    origin = Origin(file.label, file.lines.get(path))
    if not trainer.train_steps:
        message = "requires trainer.train_steps, and trainer.validation_interval in steps"
        yield Problem("search.halving", message, origin)
        return
    beyond = [rung for rung in halving.rungs if rung >= trainer.train_steps]
    if beyond:
        message = (
            f"got {beyond[0]}, expected steps below trainer.train_steps, {trainer.train_steps}"
        )
        yield Problem(path, message, origin)
    interval = trainer.validation_interval
    off = [rung for rung in halving.rungs if not interval or rung % interval]
    if off:
        message = (
            f"got {off[0]}, but trials are not evaluated at this step\n"
            f"expected multiples of trainer.validation_interval, {interval}"
        )
        yield Problem(path, message, origin)
    for one in file.space:
        if one.path in ("trainer.train_steps", "trainer.validation_interval"):
            place = Origin(file.label, file.lines.get(one.path))
            message = "cannot vary with search.halving, which compares trials at the same steps"
            yield Problem(f"space.{one.path}", message, place)
