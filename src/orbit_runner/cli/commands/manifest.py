"""`runner manifest`: prints a file with which a cluster runs an experiment."""

from __future__ import annotations

import argparse
import dataclasses
import math
import shlex
from collections.abc import Callable, Iterator, Sequence

from orbit_runner.cli.commands.run import run_parser
from orbit_runner.cli.flags.config_flags import Parser, add_config_flags, parse, parser, request
from orbit_runner.cli.preflight import setting_error_scope
from orbit_runner.config.errors import ConfigError, Problem
from orbit_runner.config.resolve import Request, Resolved, resolve
from orbit_runner.config.schema.checks.batch import batch_problems
from orbit_runner.config.schema.checks.partition import run_problems
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.modes import MODES, TRAINING
from orbit_runner.config.schema.partitioning import effective_runtime
from orbit_runner.config.serialize import to_yaml
from orbit_runner.distribute.cluster.description import Cluster, Member
from orbit_runner.distribute.cluster.roles import in_role
from orbit_runner.errors import RunnerError, unknown
from orbit_runner.launch.deploy.job_spec import (
    Order,
    job_name,
    mebibytes,
    name_problem,
    order_problems,
    requirements,
    roles_of,
    seconds_of,
)
from orbit_runner.launch.deploy.targets import ADD_FLAGS, PLACES
from orbit_runner.utils.streams import use_utf8

_DESCRIPTION = """\
Print the manifest with which {} runs an experiment.

The flags of `runner run` select the experiment. The manifest contains the resolved config, so the
cluster does not need the config files. It does need the data, and the container image, if any.
Nothing is submitted."""
_TITLES = {"kubernetes": "Kubernetes", "slurm": "Slurm", "vertex": "Vertex AI"}
_USAGE = """\
usage: runner manifest PLACE [FLAGS] [FLAGS of `runner run`]

places:
  kubernetes  a JobSet, a Job or a TFJob (--api), for kubectl
  slurm       a script, for sbatch
  vertex      a CustomJob of Vertex AI, for gcloud

`runner manifest PLACE --help` lists the flags of a place.
"""
# The setting that each flag of this command sets.
_SETTINGS = {
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
    if place not in PLACES:
        raise RunnerError(unknown("place", place, [*PLACES]))
    flags = parse(_parser(place), arguments[1:])
    resolved = resolve(_build_request(flags))
    source, write = PLACES[place]
    _check(resolved, flags, source)
    order = _order(resolved, flags, ["runner", "manifest", *arguments])
    text = write(order, flags)
    use_utf8()
    print(text, end="")
    return 0


def _parser(place: str) -> Parser:
    to = run_parser()
    to.prog, to.description = f"runner manifest {place}", _DESCRIPTION.format(_TITLES[place])
    group = to.add_argument_group("cluster")
    add = group.add_argument
    add("--workers", metavar="N", help="number of workers (runtime.num_workers)")
    add("--ps", metavar="N", help="number of parameter servers (runtime.num_parameter_servers)")
    add("--evaluator", action="store_true", help="evaluate checkpoints in a separate process")
    add("--gpus_per_worker", metavar="N", help="number of GPUs of each worker (runtime.num_gpus)")
    add("--name", metavar="NAME", help="name of the job; by default the name of the experiment")
    add("--time", metavar="TIME", help="time limit: minutes, h:mm:ss, days-hours, …")
    add("--max_restarts", metavar="N", default="10", help="maximum number of automatic restarts")
    ADD_FLAGS[place](add)
    return to


def _build_request(flags: argparse.Namespace) -> Request:
    asked = request(flags)
    more = [
        (f"--{flag}", path, getattr(flags, flag))
        for flag, path in _SETTINGS.items()
        if getattr(flags, flag) is not None
    ]
    if flags.evaluator:
        more.append(("--evaluator", "runtime.num_evaluators", "1"))
    return dataclasses.replace(asked, flags=(*asked.flags, *more))


def _check(resolved: Resolved, flags: argparse.Namespace, source: str) -> None:
    """Checks what can be checked without access to the cluster."""
    problems = [*_flag_problems(flags)]
    config = resolved.config
    found = [*order_problems(config, source)]
    if not found:
        found += [*_fit(resolved, flags.mode)]
    if flags.mode in TRAINING and not (config.trainer.train_steps or config.trainer.train_epochs):
        found.append(("trainer.train_steps", "is 0; set it, or trainer.train_epochs"))
    problems += [Problem(path, message, resolved.origin(path)) for path, message in found]
    if problems:
        raise ConfigError(problems)


def _fit(resolved: Resolved, mode: str) -> Iterator[tuple[str, str]]:
    config = resolved.config
    roles = roles_of(config.runtime)
    if "evaluator" in roles:
        jobs = {role: tuple(f"{role}-{i}:1" for i in range(n)) for role, n in roles.items()}
        with setting_error_scope(resolved):
            in_role(config, mode, Cluster(jobs, Member("worker", 0), "manifest"))
    replicas = effective_runtime(config, mode).num_replicas(roles["worker"])
    if replicas:
        yield from batch_problems(config, replicas)
    yield from run_problems(config, mode)


def _flag_problems(flags: argparse.Namespace) -> Iterator[Problem]:
    if flags.mode not in MODES:
        yield Problem("--mode", unknown("mode", flags.mode, MODES))
    if flags.pretrain_steps is not None:
        yield Problem("--pretrain_steps", f"has no effect with --mode={flags.mode}; remove it")
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


def _count(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else None


_WORDS = ("image", "namespace", "partition", "account", "machine_type", "accelerator_type")
_AMOUNTS: tuple[tuple[str, Callable[[str], int | None], str], ...] = (
    ("cpus", _count, "an integer"),
    ("memory", mebibytes, "an amount such as 512Mi or 16Gi"),
    ("shared_memory", mebibytes, "an amount such as 512Mi or 16Gi"),
    ("time", seconds_of, "minutes, minutes:seconds, h:mm:ss, days-hours or days-h:mm:ss"),
    ("max_restarts", _count, "an integer"),
    ("nodes", _count, "an integer"),
)


def _order(resolved: Resolved, flags: argparse.Namespace, command: Sequence[str]) -> Order:
    config = resolved.config
    name = flags.name or job_name(config.name)
    return Order(
        name=name,
        roles=roles_of(config.runtime),
        clustered=config.runtime.traits.is_clustered,
        gpus=config.runtime.num_gpus,
        experiment=to_yaml(config),
        model_dir=flags.model_dir or "",
        arguments=tuple(_run_flags(flags)),
        cpus=int(getattr(flags, "cpus", None) or 0),
        memory=mebibytes(getattr(flags, "memory", None) or "0Mi") or 0,
        seconds=seconds_of(flags.time or "0") or 0,
        restarts=int(flags.max_restarts),
        grace=max(120, math.ceil(config.runtime.grace_period)),
        header=tuple(_header(config, command)),
    )


def _header(config: ExperimentConfig, command: Sequence[str]) -> Iterator[str]:
    yield f"Made by: {shlex.join(command)}"
    needed = requirements(config)
    if needed:
        yield "Required where the experiment runs:"
        yield from (f"  {text}" for text in needed)


def _run_flags(flags: argparse.Namespace) -> Iterator[str]:
    """Yields the flags of `runner run` that are not part of the config."""
    of_config = parser("run", "")
    add_config_flags(of_config)
    skipped = {action.dest for action in of_config._actions} | {*_NOT_PASSED}
    for action in run_parser()._actions:
        value = getattr(flags, action.dest, None)
        if action.dest in skipped or value == action.default:
            continue
        yield f"--{action.dest}" if value is True else f"--{action.dest}={value}"
