"""`runner validate`: checks config files and reports all errors of all files at once."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from orbit_runner.cli.command import Command, Parser
from orbit_runner.cli.flags.config_flags import add_config_flags, build_request, print_notes
from orbit_runner.cli.flags.values import CONFIG_FILE
from orbit_runner.config.errors import ConfigError, Problem
from orbit_runner.config.parsing.search_path import experiment_files, find_experiment
from orbit_runner.config.resolve import Request, ResolvedConfig, resolve
from orbit_runner.config.schema.partitioning import batch_problems
from orbit_runner.jobs.gin_bindings import check_bindings
from orbit_runner.utils.streams import print_message, print_result


def main(flags: argparse.Namespace) -> int:
    """Checks experiments and fragments, each combined with the flags. Returns 0.

    A fragment declares no task, so it is merged into the experiment that `--experiment` names, or
    by default into each experiment until it fits one. Raises `ConfigError` if any file has a
    problem.
    """
    problems: list[Problem] = []
    request = build_request(flags)
    for name in flags.files:
        file_problems = _find_problems(name, request)
        problems += file_problems
        if not file_problems:
            print_result(f"{name}: ok")
    if problems:
        raise ConfigError(problems, show_all=True)
    return 0


def _add_flags(parser: Parser) -> None:
    parser.add_argument(
        "files",
        nargs="+",
        type=CONFIG_FILE,
        help="name of an experiment, a config file or fragment, or a run directory",
    )
    add_config_flags(
        parser, experiment="experiment into which fragments are merged; by default any that fits"
    )


def _find_problems(name: str, request: Request) -> list[Problem]:
    alone = _resolve_problems(dataclasses.replace(request, experiment=name))
    if not _lacks_task(alone):
        return alone
    layer = (name if Path(name).suffix else str(find_experiment(name)),)
    over = dataclasses.replace(request, config_files=(*layer, *request.config_files))
    bases = [request.experiment] if request.experiment else [*experiment_files()]
    attempts = (_resolve_problems(dataclasses.replace(over, experiment=base)) for base in bases)
    best = alone
    for problems in attempts:
        if not problems:
            return []
        best = problems if best is alone or len(problems) < len(best) else best
    return alone if _lacks_task(best) else best


def _lacks_task(problems: Sequence[Problem]) -> bool:
    return any(problem.path == "task.name" for problem in problems)


def _resolve_problems(request: Request) -> list[Problem]:
    try:
        resolved = resolve(request)
    except ConfigError as error:
        return [*error.problems]
    problems = [*_run_problems(resolved)]
    if not problems:
        print_notes(resolved)
    return problems


def _run_problems(resolved: ResolvedConfig) -> Iterator[Problem]:
    """Yields what a run would reject, as far as it does not depend on the machine."""
    runtime = resolved.config.runtime
    replicas = runtime.num_replicas(runtime.num_workers)  # 0 workers: the cluster decides
    if replicas:
        yield from resolved.locate(batch_problems(resolved.config, replicas))
    if resolved.config.gin_bindings:
        # What modules register is known only after they are imported.
        print_message("importing tensorflow, to check gin bindings")
        yield from check_bindings(resolved)


COMMAND = Command(
    "validate",
    "Check experiments and fragments, and print all errors of all files.",
    _add_flags,
    ["digits configs/runtime/cpu.yaml"],
    main,
)
