"""`runner manifest PLACE --sweep=FILE`: a manifest whose processes run the trials of a sweep."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from orbit_runner.cli.commands.manifest import (
    add_job_flags,
    fit_problems,
    header_lines,
    job_flag_problems,
    make_job_spec,
    parse_count,
    run_manifest_parser,
)
from orbit_runner.cli.commands.sweep import load_sweep, sweep_parser
from orbit_runner.cli.flags.config_flags import (
    SETTINGS_OF_FLAG,
    Parser,
    make_parser,
    normalize_spelling,
    parse_flags,
)
from orbit_runner.config.errors import ConfigError, Problem
from orbit_runner.config.parsing.search_path import (
    find_experiment,
    find_file,
    read_text,
    shipped_root,
)
from orbit_runner.config.resolve import OFFICIAL, ResolvedConfig
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.strategies import CLUSTERED_STRATEGIES, STRATEGIES
from orbit_runner.errors import RunnerError
from orbit_runner.launch.deploy.job_spec import JobSpec, job_name, manifest_problems, requirements
from orbit_runner.launch.deploy.targets import SWEEP_TARGETS, TARGETS
from orbit_runner.sweep.definition import Sweep
from orbit_runner.sweep.directory import SweepDirectory, check_file
from orbit_runner.sweep.file.check import new_sweep
from orbit_runner.sweep.file.sweep_file import SweepFile

_DESCRIPTION = """\
Print the manifest with which several processes run the trials of a sweep, each as `runner sweep
FILE`. They share the directory of the sweep, which must have file locks (flock).

The manifest contains the sweep file. The experiment and the config files that it names must exist
where it runs, unless they are part of orbit-runner. Nothing is submitted."""
_ONE_PROCESS = [name for name in STRATEGIES if name not in (*CLUSTERED_STRATEGIES, "tpu")]
# Flags of `runner sweep` that the processes get.
_PASSED_FLAGS = ("model_dir", "jobs", "devices_per_job", "seeds", "cold", "imports")
_SET_IN_FILE = "set it under `overrides` in the sweep file"
_CHANGES_ONCE = (
    "changes the sweep once: run `runner sweep` with it, and then start the manifest without it"
)
# What to use instead of flags that a sweep does not take.
_ALTERNATIVES = {
    "experiment": "set `experiment` in the sweep file",
    "config_file": "set `config_file` in the sweep file",
    "seed": "use --seeds, or set `runtime.seed` under `overrides` in the sweep file",
    "num_gpus": "use --gpus_per_worker, or set `runtime.num_gpus` under `overrides`",
    "ps": "each trial is one process; use --workers to train more trials at a time",
    "evaluator": "each trial is one process; use --workers to train more trials at a time",
    "mode": "trials are trained and evaluated; remove it",
    "dry_run": "use `runner sweep FILE --dry_run`",
    "more_steps": _CHANGES_ONCE,
    "exclude": _CHANGES_ONCE,
    "force": _CHANGES_ONCE,
    **dict.fromkeys(("gin_file", "params_override", "gin_param"), _SET_IN_FILE),
    **{name: _SET_IN_FILE for name in SETTINGS_OF_FLAG if name not in ("seed", "num_gpus")},
}


def sweep_manifest(place: str, arguments: Sequence[str]) -> str:
    """Returns the manifest of a sweep. Raises an error if it cannot run there."""
    if place not in SWEEP_TARGETS:
        raise RunnerError(
            f"--sweep: the processes of a sweep need file locks, which `{place}` does not have\n"
            f"allowed: {', '.join(SWEEP_TARGETS)}"
        )
    parser = _parser(place)
    _refuse_other_flags(parser, place, arguments)
    flags = parse_flags(parser, arguments)
    file, base = load_sweep(flags)
    source, write = TARGETS[place]
    _check_manifest(file, base, flags, source)
    if place == "slurm" and flags.model_dir:  # On Kubernetes, it is a path in the containers.
        check_file(SweepDirectory(Path(flags.model_dir)), file, base)
    return write(
        _make_sweep_spec(file, base, flags, ["runner", "manifest", place, *arguments]), flags
    )


def _parser(place: str) -> Parser:
    parser = make_parser(f"manifest {place} --sweep=FILE", _DESCRIPTION)
    parser.settings_rule = _SET_IN_FILE
    group = parser.add_argument_group("cluster")
    add = group.add_argument
    add("--sweep", dest="sweep_file", metavar="FILE", help="sweep file")
    add("--workers", metavar="N", help="number of processes: array elements, or pods")
    add("--gpus_per_worker", metavar="N", help="number of GPUs of each process")
    add_job_flags(add, place)
    sweep_group = parser.add_argument_group("sweep")
    for action in sweep_parser()._actions:
        if action.dest in _PASSED_FLAGS:
            sweep_group._add_action(action)
    return parser


def _refuse_other_flags(parser: Parser, place: str, arguments: Sequence[str]) -> None:
    """Raises ConfigError for flags of other commands, with what to use instead."""
    taken = _option_names(parser)
    others = _option_names(run_manifest_parser(place)) | _option_names(sweep_parser())
    words = normalize_spelling(parser, arguments)
    given = dict.fromkeys(word.partition("=")[0].replace("-", "_").lstrip("_") for word in words
                          if word.startswith("--"))  # fmt: skip
    problems = [
        Problem(f"--{name}", _ALTERNATIVES.get(name, "has no effect on a sweep; remove it"))
        for name in given
        if name in others - taken
    ]
    if problems:
        raise ConfigError(problems)


def _option_names(parser: Parser) -> set[str]:
    return {option.lstrip("-") for action in parser._actions for option in action.option_strings}


def _check_manifest(
    file: SweepFile, base: ResolvedConfig, flags: argparse.Namespace, source: str
) -> None:
    """Checks what can be checked without access to the cluster."""
    problems = [*job_flag_problems(flags), *_worker_problems(new_sweep(file, base), flags)]
    found = [*_trial_problems(base.config, source)]
    if not found:
        found += [*fit_problems(base, "train_and_eval")]
        problems += _gpu_problems(base.config, flags)
    problems += [Problem(path, message, base.origin(path)) for path, message in found]
    if problems:
        raise ConfigError(problems)


def _worker_problems(sweep: Sweep, flags: argparse.Namespace) -> Iterator[Problem]:
    runs = sweep.trials * len(sweep.seeds)
    most = math.ceil(runs / flags.jobs)
    if flags.workers is None:
        yield Problem("--workers", "is not set; expected the number of processes of the sweep")
    elif not (workers := parse_count(flags.workers)):
        yield Problem("--workers", f"got {flags.workers!r:.60}, expected an integer of at least 1")
    elif workers > most:
        message = f"got {workers}, allowed: at most {most}, because the sweep has {runs} runs"
        jobs = f", {flags.jobs} at a time in each process" if flags.jobs > 1 else ""
        yield Problem("--workers", f"{message}{jobs}")


def _trial_problems(config: ExperimentConfig, source: str) -> Iterator[tuple[str, str]]:
    runtime = config.runtime
    if runtime.distribution_strategy not in _ONE_PROCESS:
        yield (
            "runtime.distribution_strategy",
            f"got {runtime.distribution_strategy!r}, but each trial is one process\n"
            f"allowed: {', '.join(_ONE_PROCESS)}",
        )
    elif runtime.num_gpus < 0:
        yield "runtime.num_gpus", f"got {runtime.num_gpus}, but a manifest requires a number"
    else:
        yield from manifest_problems(config, source)


def _gpu_problems(config: ExperimentConfig, flags: argparse.Namespace) -> Iterator[Problem]:
    each, jobs, given = config.runtime.num_gpus, flags.jobs, flags.gpus_per_worker
    needed = each * jobs
    if given is not None and (gpus := parse_count(given)) is None:
        yield Problem("--gpus_per_worker", f"got {given!r:.60}, expected an integer")
    elif given is not None and (gpus < needed or (gpus and not each)):
        trials = f"{jobs} trials" if jobs > 1 else "a trial"
        uses = f"{trials} with runtime.num_gpus: {each} use {needed}"
        yield Problem("--gpus_per_worker", f"got {gpus}, but {uses}")
    allowed = {each} if jobs > 1 else {0, each}
    if flags.devices_per_job not in allowed:
        # Without it, the trials of a process would use the same GPUs.
        text = " or ".join(map(str, sorted(allowed)))
        message = f"got {flags.devices_per_job}, allowed: {text} (runtime.num_gpus: {each})"
        yield Problem("--devices_per_job", message)


def _make_sweep_spec(
    file: SweepFile, base: ResolvedConfig, flags: argparse.Namespace, command: Sequence[str]
) -> JobSpec:
    config, given = base.config, flags.gpus_per_worker
    needed = [*requirements(config), *_files_needed(file)]
    text = read_text(find_file(flags.sweep_file), flags.sweep_file)
    return make_job_spec(
        config,
        flags,
        name=flags.name or job_name(f"sweep-{config.name}"),
        roles={"worker": int(flags.workers)},
        gpus=config.runtime.num_gpus * flags.jobs if given is None else int(given),
        experiment=text if text.endswith("\n") else f"{text}\n",
        is_sweep=True,
        arguments=tuple(_sweep_flags(flags)),
        header=(
            *header_lines(command, needed),
            "The processes divide the trials by file locks, which must hold between machines.",
        ),
    )


def _files_needed(file: SweepFile) -> Iterator[str]:
    """Yields the files that the sweep file names and that are not part of orbit-runner."""
    if not file.experiment.startswith(OFFICIAL) and not _is_shipped(
        find_experiment(file.experiment)
    ):
        yield f"experiment: {file.experiment}"
    yield from (f"config_file: {n}" for n in file.config_files if not _is_shipped(find_file(n)))


def _is_shipped(path: Path) -> bool:
    own = (shipped_root() / "experiments", shipped_root() / "configs")
    return any(directory in path.absolute().parents for directory in own)


def _sweep_flags(flags: argparse.Namespace) -> Iterator[str]:
    """Yields the flags of `runner sweep` that its processes get."""
    for action in sweep_parser()._actions:
        value = getattr(flags, action.dest, None)
        if (
            action.dest not in _PASSED_FLAGS
            or action.dest == "model_dir"
            or value == action.default
        ):
            continue
        for one in value if isinstance(value, list) else [value]:
            yield action.option_strings[0] + ("" if one is True else f"={one}")
