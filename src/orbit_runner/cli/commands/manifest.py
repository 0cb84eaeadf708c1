"""`runner manifest`: prints a file with which a cluster runs an experiment or a sweep."""

from __future__ import annotations

import argparse
import dataclasses
import math
import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from orbit_runner.cli.commands.run import run_parser
from orbit_runner.cli.flags.config_flags import (
    Parser,
    add_config_flags,
    build_request,
    make_parser,
    parse_flags,
)
from orbit_runner.cli.preflight import setting_error_scope
from orbit_runner.config.errors import ConfigError, Problem
from orbit_runner.config.resolve import Request, ResolvedConfig, resolve
from orbit_runner.config.schema.checks.batch import batch_problems
from orbit_runner.config.schema.checks.partition import run_problems
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.modes import MODES, TRAINING
from orbit_runner.config.schema.partitioning import effective_runtime
from orbit_runner.config.serialize import to_yaml
from orbit_runner.distribute.cluster.description import Cluster, Member
from orbit_runner.distribute.cluster.roles import adapt_to_role
from orbit_runner.errors import RunnerError, unknown_name_message
from orbit_runner.launch.deploy.job_spec import (
    JobSpec,
    job_name,
    manifest_problems,
    name_problem,
    parse_mebibytes,
    parse_seconds,
    requirements,
    roles_of,
)
from orbit_runner.launch.deploy.targets import ADD_FLAGS, SWEEP_TARGETS, TARGETS
from orbit_runner.utils.streams import use_utf8

_DESCRIPTION = """\
Print the manifest with which {} runs an experiment.

The flags of `runner run` select the experiment. The manifest contains the resolved config, so the
cluster does not need the config files. It does need the data, and the container image, if any.
Nothing is submitted.{}"""
_SWEEP = """

With --sweep=FILE, several processes run the trials of a sweep, as `runner sweep FILE`. Then other
flags are accepted: see `runner manifest {} --sweep=FILE --help`."""
_TITLES = {"kubernetes": "Kubernetes", "slurm": "Slurm", "vertex": "Vertex AI"}
_USAGE = """\
usage: runner manifest PLACE [FLAGS] [FLAGS of `runner run`]
       runner manifest PLACE --sweep=FILE [FLAGS] [FLAGS of `runner sweep`]

places:
  kubernetes  a JobSet, a Job or a TFJob (--api), for kubectl; for a sweep an indexed Job
  slurm       a script, for sbatch; for a sweep a job array
  vertex      a CustomJob of Vertex AI, for gcloud

`runner manifest PLACE --help` lists the flags of a place.
"""
# The setting that each flag of this command sets.
_FLAG_SETTINGS = {
    "workers": "runtime.num_workers",
    "ps": "runtime.num_parameter_servers",
    "gpus_per_worker": "runtime.num_gpus",
}
# Flags of `runner run` that do not apply in a cluster, or are passed in another way.
_NOT_PASSED = ("help", "model_dir", "progress", "progress_interval", "json", "pretrain_steps")


def main(arguments: Sequence[str]) -> int:
    """Prints a manifest; raises an error if the experiment cannot run there. Returns 0."""
    place = arguments[0] if arguments else "--help"
    if place in ("--help", "-h"):
        print(_USAGE, end="")
        return 0
    if place not in TARGETS:
        raise RunnerError(unknown_name_message("place", place, [*TARGETS]))
    if any(word == "--sweep" or word.startswith("--sweep=") for word in arguments):
        from orbit_runner.cli.sweep.manifest import sweep_manifest

        text = sweep_manifest(place, arguments[1:])
    else:
        text = _make_manifest(place, arguments[1:])
    use_utf8()
    print(text, end="")
    return 0


def _make_manifest(place: str, arguments: Sequence[str]) -> str:
    flags = parse_flags(run_manifest_parser(place), arguments)
    if getattr(flags, "sweep_file", None):
        raise RunnerError("--sweep: write --sweep=FILE on the command line")
    resolved = resolve(_build_cluster_request(flags))
    source, write = TARGETS[place]
    _check_manifest(resolved, flags, source)
    return write(_make_run_spec(resolved, flags, ["runner", "manifest", place, *arguments]), flags)


def run_manifest_parser(place: str) -> Parser:
    """Returns the parser of the manifest of an experiment."""
    parser, is_for_sweeps = run_parser(), place in SWEEP_TARGETS
    parser.prog = f"runner manifest {place}"
    parser.description = _DESCRIPTION.format(
        _TITLES[place], _SWEEP.format(place) if is_for_sweeps else ""
    )
    group = parser.add_argument_group("cluster")
    add = group.add_argument
    add("--workers", metavar="N", help="number of workers (runtime.num_workers)")
    add("--ps", metavar="N", help="number of parameter servers (runtime.num_parameter_servers)")
    add("--evaluator", action="store_true", help="evaluate checkpoints in a separate process")
    add("--gpus_per_worker", metavar="N", help="number of GPUs of each worker (runtime.num_gpus)")
    add_job_flags(add, place)
    if is_for_sweeps:
        add("--sweep", dest="sweep_file", metavar="FILE", help="sweep file; see above")
    return parser


def add_job_flags(add: Callable[..., Any], place: str) -> None:
    """Adds the flags of the job that runs an experiment or a sweep."""
    add(
        "--name",
        metavar="NAME",
        help="name of the job; by default made from that of the experiment",
    )
    add("--time", metavar="TIME", help="time limit: minutes, h:mm:ss, days-hours, …")
    add("--max_restarts", metavar="N", default="10", help="maximum number of automatic restarts")
    ADD_FLAGS[place](add)


def _build_cluster_request(flags: argparse.Namespace) -> Request:
    request = build_request(flags)
    more = [
        (f"--{flag}", path, getattr(flags, flag))
        for flag, path in _FLAG_SETTINGS.items()
        if getattr(flags, flag) is not None
    ]
    if flags.evaluator:
        more.append(("--evaluator", "runtime.num_evaluators", "1"))
    return dataclasses.replace(request, flags=(*request.flags, *more))


def _check_manifest(resolved: ResolvedConfig, flags: argparse.Namespace, source: str) -> None:
    """Checks what can be checked without access to the cluster."""
    problems = [*_mode_problems(flags), *job_flag_problems(flags)]
    config = resolved.config
    found = [*manifest_problems(config, source)]
    if not found:
        found += [*fit_problems(resolved, flags.mode)]
    if flags.mode in TRAINING and not (config.trainer.train_steps or config.trainer.train_epochs):
        found.append(("trainer.train_steps", "is 0; set it, or trainer.train_epochs"))
    problems += [Problem(path, message, resolved.origin(path)) for path, message in found]
    if problems:
        raise ConfigError(problems)


def fit_problems(resolved: ResolvedConfig, mode: str) -> Iterator[tuple[str, str]]:
    """Yields (dotted path, message) of settings that do not fit the number of processes."""
    config = resolved.config
    roles = roles_of(config.runtime)
    if "evaluator" in roles:
        jobs = {role: tuple(f"{role}-{i}:1" for i in range(n)) for role, n in roles.items()}
        with setting_error_scope(resolved):
            adapt_to_role(config, mode, Cluster(jobs, Member("worker", 0), "manifest"))
    replicas = effective_runtime(config, mode).num_replicas(roles["worker"])
    if replicas:
        yield from batch_problems(config, replicas)
    yield from run_problems(config, mode)


def _mode_problems(flags: argparse.Namespace) -> Iterator[Problem]:
    if flags.mode not in MODES:
        yield Problem("--mode", unknown_name_message("mode", flags.mode, MODES))
    if flags.pretrain_steps is not None:
        yield Problem("--pretrain_steps", f"has no effect with --mode={flags.mode}; remove it")


def job_flag_problems(flags: argparse.Namespace) -> Iterator[Problem]:
    """Yields the problems of the flags of `add_job_flags`."""
    if flags.name and name_problem(flags.name):
        yield Problem("--name", name_problem(flags.name))
    for name in _WORDS:
        value = getattr(flags, name, None) or ""
        if any(char.isspace() for char in value):
            yield Problem(f"--{name}", f"got {value!r:.60}, expected a name without spaces")
    for name, read, expected in _AMOUNTS:
        value = getattr(flags, name, None)
        if value is not None and read(value) is None:
            yield Problem(f"--{name}", f"got {value!r:.60}, expected {expected}")


def parse_count(text: str) -> int | None:
    """Returns the number that a flag gives, or None if it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else None


_WORDS = ("image", "namespace", "partition", "account", "machine_type", "accelerator_type")
_AMOUNTS: tuple[tuple[str, Callable[[str], int | None], str], ...] = (
    ("cpus", parse_count, "an integer"),
    ("memory", parse_mebibytes, "an amount such as 512Mi or 16Gi"),
    ("shared_memory", parse_mebibytes, "an amount such as 512Mi or 16Gi"),
    ("time", parse_seconds, "minutes, minutes:seconds, h:mm:ss, days-hours or days-h:mm:ss"),
    ("max_restarts", parse_count, "an integer"),
    ("nodes", parse_count, "an integer"),
)


def _make_run_spec(
    resolved: ResolvedConfig, flags: argparse.Namespace, command: Sequence[str]
) -> JobSpec:
    config = resolved.config
    return make_job_spec(
        config,
        flags,
        name=flags.name or job_name(config.name),
        roles=roles_of(config.runtime),
        gpus=config.runtime.num_gpus,
        experiment=to_yaml(config),
        arguments=tuple(_run_flags(flags)),
        header=(*header_lines(command, requirements(config)),),
    )


def make_job_spec(config: ExperimentConfig, flags: argparse.Namespace, **fields: Any) -> JobSpec:
    """Returns a job spec with the values of the job flags, and the given other fields."""
    return JobSpec(
        clustered=config.runtime.traits.is_clustered,
        model_dir=flags.model_dir or "",
        cpus=int(getattr(flags, "cpus", None) or 0),
        memory=parse_mebibytes(getattr(flags, "memory", None) or "0Mi") or 0,
        seconds=parse_seconds(flags.time or "0") or 0,
        restarts=int(flags.max_restarts),
        grace=max(120, math.ceil(config.runtime.grace_period)),
        **fields,
    )


def header_lines(command: Sequence[str], needed: Sequence[str]) -> Iterator[str]:
    """Yields the comment at the top of a manifest: its origin, and what it needs."""
    yield f"Made by: {shlex.join(command)}"
    if needed:
        yield "Required where the experiment runs:"
        yield from (f"  {text}" for text in needed)


def _run_flags(flags: argparse.Namespace) -> Iterator[str]:
    """Yields the flags of `runner run` that are not part of the config."""
    config_parser = make_parser("run", "")
    add_config_flags(config_parser)
    skipped = {action.dest for action in config_parser._actions} | {*_NOT_PASSED}
    for action in run_parser()._actions:
        value = getattr(flags, action.dest, None)
        if action.dest in skipped or value == action.default:
            continue
        yield f"--{action.dest}" if value is True else f"--{action.dest}={value}"
