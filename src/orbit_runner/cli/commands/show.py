"""`runner show`: prints the resolved config, its differences, its JSON Schema, or its errors."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from orbit_runner.cli.command import SECTIONS, Command, emit
from orbit_runner.cli.flags.config_flags import CONFIG_FLAGS, build_request, print_notes
from orbit_runner.cli.flags.rows import Group, flag, switch
from orbit_runner.cli.flags.values import CONFIG_FILE
from orbit_runner.config.errors import DEFAULT, ConfigError, Origin, Problem
from orbit_runner.config.json_schema import format_json_schema
from orbit_runner.config.parsing.search_path import experiment_files, find_experiment
from orbit_runner.config.resolve import Request, ResolvedConfig, import_modules, resolve
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.partitioning import batch_problems
from orbit_runner.config.serialize import Difference, differences, flat_settings, to_yaml
from orbit_runner.errors import RunnerError
from orbit_runner.utils.streams import print_message, print_result
from orbit_runner.utils.text_table import table_lines

_DESCRIPTION = """\
Print the resolved config as YAML, which can be loaded as an experiment.

With --schema, print a JSON Schema (draft-07), with which editors complete and check config files:
of all tasks, models and data sources, or, with --experiment, of the files that change that
experiment, with its values as the defaults.

With --check, check files instead, and print all errors of all of them: experiments and fragments,
each combined with the flags. A fragment declares no task, so it is merged into the experiment that
--experiment names, or by default into each experiment until it fits one."""


def main(flags: argparse.Namespace) -> int:
    """Prints the config, its differences from another one, or the schema. Returns 0.

    With `--check`, raises `ConfigError` if any file has a problem.
    """
    request = build_request(flags)
    if flags.check:
        return _check(flags, request)
    if flags.files:
        raise RunnerError(
            f"has an effect only with --check\nto print the config: runner show "
            f"--experiment={flags.files[0]}",
            path="FILE",
            code="no-effect",
        )
    if flags.schema and request == Request(imports=request.imports):
        import_modules(request.imports, Origin("--import"))
        print_result(format_json_schema(ExperimentConfig()), is_data=True)
        return 0
    resolved = resolve(request)
    if flags.diff:
        other = resolve(Request(experiment=flags.diff, imports=request.imports))
        changes = differences(resolved.config, other.config)
        values = {item.path: [item.left, item.right] for item in changes}
        lines = _format_differences(changes, flags.experiment or "", flags.diff)
        return emit(flags, values, lines)
    print_notes(resolved)
    if flags.schema:
        print_result(format_json_schema(resolved.config), is_data=True)
    elif flags.json:
        emit(flags, _describe(resolved), [])
    else:
        text = to_yaml(resolved.config, resolved.origins if flags.origins else None)
        print_result(text, is_data=True)
    return 0


def _format_differences(changes: Sequence[Difference], left: str, right: str) -> list[str]:
    """Returns the lines of a three-column table, with `left` and `right` as headings."""
    if not changes:
        return ["no differences"]
    rows = [("", left, right), *((item.path, item.left, item.right) for item in changes)]
    return table_lines(rows)


def _describe(resolved: ResolvedConfig) -> dict[str, object]:
    return {
        path: {"value": value, "origin": str(resolved.origins.get(path, DEFAULT))}
        for path, value in flat_settings(resolved.config).items()
    }


def _check(flags: argparse.Namespace, request: Request) -> int:
    """Checks the files, or the experiment of the flags. Returns 0 if they are correct."""
    if flags.files:
        problems = {name: _find_problems(name, request) for name in flags.files}
    else:
        problems = {flags.experiment or "--experiment": _resolve_problems(request)}
    valid = [name for name, file_problems in problems.items() if not file_problems]
    every = [problem for file_problems in problems.values() for problem in file_problems]
    if valid and not (every and flags.json):
        emit(flags, {"valid": valid}, [f"{name}: ok" for name in valid])
    if every:
        raise ConfigError(every, show_all=True)
    return 0


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
        from orbit_runner.jobs.gin_bindings import check_bindings

        # What modules register is known only after they are imported.
        print_message("importing tensorflow, to check gin bindings")
        yield from check_bindings(resolved)


_FLAGS = (
    flag(
        "files",
        "with --check: names of experiments, config files, fragments, or run directories",
        nargs="*",
        type=CONFIG_FILE,
    ),
    Group(
        [
            switch("--origins", "add where each value was set"),
            flag(
                "--diff=EXPERIMENT",
                "print only the settings that differ from another experiment, config file or run",
                type=CONFIG_FILE,
            ),
            switch("--schema", "print the JSON Schema instead"),
            switch("--check", "check files, and print all errors"),
        ]
    ),
    switch(
        "--json",
        "print JSON that maps each path to {value, origin}; with --diff, to both values; with "
        "--check, that lists the files without errors",
    ),
    *CONFIG_FLAGS,
)
COMMAND = Command(
    "show",
    _DESCRIPTION,
    _FLAGS,
    [
        "--experiment=digits --task.model.dropout_rate=0.2 --origins",
        "--experiment=digits --diff=digits_mlp",
        "--check digits configs/runtime/cpu.yaml",
        "--schema",
    ],
    main,
    settings=SECTIONS,
)
