"""`runner manifest`: prints a file with which a cluster runs an experiment or a sweep."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import math
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from orbit_runner import tf_internals
from orbit_runner.cli.command import Command, CommandGroup, Parser
from orbit_runner.cli.commands import run, sweep
from orbit_runner.cli.flags.config_flags import build_request
from orbit_runner.cli.flags.values import MODEL_DIR, SHARED, SWEEP_FILE
from orbit_runner.config.errors import ConfigError, Problem
from orbit_runner.config.parsing.search_path import find_file, read_text
from orbit_runner.config.resolve import Request, ResolvedConfig, resolve
from orbit_runner.config.schema.modes import MODES, TRAINING
from orbit_runner.config.schema.partitioning import batch_problems, effective_runtime, run_problems
from orbit_runner.config.schema.strategies import STRATEGIES
from orbit_runner.config.serialize import to_yaml
from orbit_runner.distribute.cluster.description import Cluster, Member
from orbit_runner.distribute.cluster.roles import adapt_to_role
from orbit_runner.errors import RunnerError, format_choices, unknown_name_message
from orbit_runner.jobs.preflight import setting_error_scope
from orbit_runner.launch.manifests import (
    SWEEP_TARGETS,
    TARGETS,
    Job,
    config_problems,
    default_model_dir,
    job_name,
    job_problems,
    manifest,
    requirements,
    roles_of,
)
from orbit_runner.sweep.definition import new_sweep
from orbit_runner.utils.streams import use_utf8

if TYPE_CHECKING:
    from orbit_runner.utils.types import JsonObject

_DESCRIPTION = """\
Print the manifest with which {} runs an experiment.

The flags of `runner run` select the experiment. The manifest contains the resolved config, so the
cluster does not need the config files. It does need the data, and the container image, if any. Edit
the text for what your cluster needs, such as a time limit. Nothing is submitted.{}"""
_SWEEP = """

With --sweep=FILE, several processes run the trials of a sweep, as `runner sweep FILE`. Then other
flags are accepted: see `runner manifest {} --sweep=FILE --help`."""
_SWEEP_DESCRIPTION = """\
Print the manifest with which several processes run the trials of a sweep, each as `runner sweep
FILE`. They share the directory of the sweep, which must have file locks (flock).

The manifest contains the sweep file. The experiment and the config files that it names must exist
where it runs, unless they are part of orbit-runner. Edit the text for what your cluster needs, such
as a time limit. Nothing is submitted."""
_TITLES = {"kubernetes": "Kubernetes", "slurm": "Slurm", "vertex": "Vertex AI"}
_USAGE = """\
usage: runner manifest PLACE [FLAGS] [FLAGS of `runner run`]
       runner manifest PLACE --sweep=FILE [FLAGS] [FLAGS of `runner sweep`]

places:
  kubernetes  a JobSet, or a Job for one process, for kubectl; for a sweep
              an indexed Job
  slurm       a script, for sbatch; for a sweep a job array
  vertex      a CustomJob of Vertex AI, for gcloud

`runner manifest PLACE --help` lists the flags of a place."""
_EXAMPLES = {
    "kubernetes": " --image=my/runner:1",
    "slurm": "",
    "vertex": " --image=my/runner:1 --model_dir=/gcs/bucket/a",
}
# It is on other machines.
_MODEL_DIR = dataclasses.replace(MODEL_DIR, kind="input", use=SHARED)
# The setting that each flag of this command sets.
_FLAG_SETTINGS = {
    "workers": "runtime.num_workers",
    "ps": "runtime.num_parameter_servers",
    "gpus_per_worker": "runtime.num_gpus",
}
# Flags of `runner run` and `runner sweep` that the processes get, and that no config contains.
_RUN_FLAGS = ("mode", "resume", "enable_async_checkpointing", "stop_at_step")
_SWEEP_FLAGS = ("jobs", "devices_per_job", "seeds", "cold", "imports")
_ONE_PROCESS = [
    name for name, traits in STRATEGIES.items() if not (traits.is_clustered or traits.uses_tpu)
]


def _run_command(place: str) -> Command:
    title = _TITLES[place]
    more = _SWEEP.format(place) if place in SWEEP_TARGETS else ""
    return Command(
        f"manifest {place}",
        _DESCRIPTION.format(title, more),
        functools.partial(_add_flags, place),
        [f"--experiment=digits{_EXAMPLES[place]}"],
        lambda flags: _print_manifest(_run_manifest(place, flags)),
    )


def _sweep_command(place: str) -> Command:
    image = _EXAMPLES[place].partition(" --model_dir")[0]
    example = f"--sweep=configs/sweeps/digits_mlp.yaml --workers=4{image}"
    return Command(
        f"manifest {place} --sweep=FILE",
        _SWEEP_DESCRIPTION,
        functools.partial(_add_sweep_flags, place),
        [example],
        lambda flags: _print_manifest(_sweep_manifest(place, flags)),
    )


def _print_manifest(text: str) -> int:
    use_utf8()
    print(text, end="")
    return 0


def _run_manifest(place: str, flags: argparse.Namespace) -> str:
    """Returns a manifest; raises an error if the experiment cannot run there."""
    resolved = resolve(_build_cluster_request(flags))
    config = resolved.config
    problems = [*config_problems(config, place)] or [*_fit_problems(resolved, flags.mode)]
    if flags.mode in TRAINING:
        problems += config.trainer.length_problems()
    problems = resolved.locate(problems)
    return manifest(
        place,
        Job(
            **_checked_fields(place, flags, resolved, "", [*_mode_problems(flags), *problems]),
            roles=roles_of(config.runtime),
            gpus=config.runtime.num_gpus,
            document=to_yaml(config),
            arguments=tuple(_given_flags(run.COMMAND.parser(), flags, _RUN_FLAGS)),
            header=tuple(_header_lines(place, flags.arguments, requirements(config))),
        ),
    )


def _add_flags(place: str, parser: Parser) -> None:
    run.add_flags(parser, _MODEL_DIR)
    add = parser.add_argument_group("cluster").add_argument
    add("--workers", metavar="N", help="number of workers (runtime.num_workers)")
    add("--ps", metavar="N", help="number of parameter servers (runtime.num_parameter_servers)")
    add("--evaluator", action="store_true", help="evaluate checkpoints in a separate process")
    add("--gpus_per_worker", metavar="N", help="number of GPUs of each worker (runtime.num_gpus)")
    _add_job_flags(add, place)
    if place in SWEEP_TARGETS:
        add("--sweep", dest="sweep_file", type=SWEEP_FILE,
            help="sweep file; see above")  # fmt: skip
    else:
        add(
            "--sweep",
            dest="sweep_file",
            type=functools.partial(_refuse_sweep, place),
            help=argparse.SUPPRESS,
        )


def _refuse_sweep(place: str, _: str) -> None:
    raise RunnerError(
        f"the processes of a sweep need file locks, which `{place}` does not have\n"
        f"allowed: {', '.join(SWEEP_TARGETS)}",
        path="--sweep",
        code="not-supported",
    )


def _add_job_flags(add: Callable[..., object], place: str) -> None:
    """Adds the flags of the job that runs an experiment or a sweep."""
    add("--name", metavar="NAME", help="name of the job; by default that of the experiment")
    if place != "slurm":
        add("--image", metavar="IMAGE", help="container image in which `runner` is installed")


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


def _mode_problems(flags: argparse.Namespace) -> Iterator[Problem]:
    if flags.mode not in MODES:
        yield Problem("--mode", unknown_name_message("mode", flags.mode, MODES), code="not-allowed")
    if flags.pretrain_steps is not None:
        yield Problem(
            "--pretrain_steps",
            f"has no effect with --mode={flags.mode}; remove it",
            code="no-effect",
        )


def _fit_problems(resolved: ResolvedConfig, mode: str) -> Iterator[Problem]:
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


def _sweep_manifest(place: str, flags: argparse.Namespace) -> str:
    file, base = sweep.load_sweep(flags)
    trials = new_sweep(file, base)
    problems = base.locate(_trial_problems(base, place))
    problems += _worker_problems(flags, trials.trials * len(trials.seeds))
    gpus = max(base.config.runtime.num_gpus, 0)
    problems += _gpu_problems(flags, gpus)
    own_files = [path for path in (file.experiment, *file.config_files) if os.path.exists(path)]
    text = read_text(find_file(flags.sweep_file), flags.sweep_file)
    return manifest(
        place,
        Job(
            **_checked_fields(place, flags, base, "sweep-", problems),
            roles={"worker": flags.workers},
            gpus=gpus * flags.jobs,
            document=text if text.endswith("\n") else f"{text}\n",
            arguments=tuple(_given_flags(sweep.COMMAND.parser(), flags, _SWEEP_FLAGS)),
            header=tuple(
                _header_lines(place, flags.arguments, [*requirements(base.config), *own_files])
            ),
            is_sweep=True,
        ),
    )


def _add_sweep_flags(place: str, parser: Parser) -> None:
    parser.settings_rule = "set it under `overrides` in the sweep file"
    add = parser.add_argument_group("cluster").add_argument
    add("--sweep", dest="sweep_file", type=SWEEP_FILE, help="sweep file")
    add("--workers", type=int, metavar="N", help="number of processes: array elements, or pods")
    _add_job_flags(add, place)
    group = parser.add_argument_group("sweep")
    for action in sweep.COMMAND.parser().arguments:
        if action.dest in ("model_dir", *_SWEEP_FLAGS):
            action.type = _MODEL_DIR if action.dest == "model_dir" else action.type
            tf_internals.add_argument_again(group, action)


def _trial_problems(base: ResolvedConfig, place: str) -> Iterator[Problem]:
    strategy = base.config.runtime.distribution_strategy
    if strategy not in _ONE_PROCESS:
        yield Problem(
            "runtime.distribution_strategy",
            f"got {strategy!r}, but each trial is one process\nallowed: {', '.join(_ONE_PROCESS)}",
            code="not-allowed",
        )
    else:
        yield from [*config_problems(base.config, place)] or _fit_problems(base, "train_and_eval")


def _worker_problems(flags: argparse.Namespace, runs: int) -> Iterator[Problem]:
    most = math.ceil(runs / flags.jobs)
    if flags.workers is None:
        yield Problem(
            "--workers",
            f"is not set; expected the number of processes, 1 to {most}",
            code="not-set",
        )
    elif not 1 <= flags.workers <= most:
        jobs = f", {flags.jobs} at a time in each process" if flags.jobs > 1 else ""
        message = f"got {flags.workers}, allowed: 1 to {most}, because the sweep has {runs} runs"
        yield Problem("--workers", f"{message}{jobs}", code="out-of-range")


def _gpu_problems(flags: argparse.Namespace, gpus: int) -> Iterator[Problem]:
    allowed = {gpus} if flags.jobs > 1 else {0, gpus}
    if flags.devices_per_job not in allowed:
        # Without it, the trials of a process would use the same GPUs.
        text = format_choices(sorted(allowed))
        message = f"got {flags.devices_per_job}, allowed: {text} (runtime.num_gpus: {gpus})"
        yield Problem("--devices_per_job", message, code="out-of-range")


def _checked_fields(
    place: str,
    flags: argparse.Namespace,
    resolved: ResolvedConfig,
    prefix: str,
    problems: Sequence[Problem],
) -> JsonObject:
    """Returns the fields of a job that experiments and sweeps have in common.

    Raises ConfigError if there are problems, or these fields have some. `prefix` is the beginning
    of the default name.
    """
    config = resolved.config
    name = flags.name or job_name(prefix + config.name)
    image = getattr(flags, "image", None) or ""
    model_dir = flags.model_dir or default_model_dir(place, name)
    field_problems = [*job_problems(place, name, image, model_dir)]
    if problems or field_problems:
        raise ConfigError([*problems, *field_problems])
    grace = max(120, math.ceil(config.runtime.grace_period))
    return {"name": name, "image": image, "model_dir": model_dir, "grace": grace}


def _header_lines(place: str, arguments: Sequence[str], needed: Iterable[str]) -> Iterator[str]:
    """Yields the comment at the top of a manifest: its origin, and what it needs."""
    yield f"Made by: {shlex.join(['runner', 'manifest', place, *arguments])}"
    lines = [f"  {text}" for text in needed]
    if lines:
        yield from ("Required where it runs:", *lines)


def _given_flags(parser: Parser, flags: argparse.Namespace, names: Sequence[str]) -> Iterator[str]:
    """Yields the flags of a command with other values than their defaults."""
    for action in parser.arguments:
        value = getattr(flags, action.dest, None)
        if action.dest not in names or value == action.default:
            continue
        for flag_value in value if isinstance(value, list) else [value]:
            yield action.option_strings[0] + ("" if flag_value is True else f"={flag_value}")


COMMAND = CommandGroup(
    "manifest",
    "place",
    _USAGE,
    (*map(_run_command, TARGETS), *map(_sweep_command, SWEEP_TARGETS)),
)
