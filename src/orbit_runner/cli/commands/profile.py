"""`runner profile`: shows where the time of a training step goes."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_runner.cli.command import Command, Parser
from orbit_runner.cli.flags.config_flags import (
    add_config_flags,
    add_progress_flags,
    apply_argument,
    build_request,
    messages_scope,
    print_notes,
    progress_of,
)
from orbit_runner.cli.flags.values import EXPERIMENT, OUTPUT_DIRECTORY
from orbit_runner.config.errors import ConfigError, Problem
from orbit_runner.config.parsing.search_path import SUFFIXES
from orbit_runner.config.resolve import Request, ResolvedConfig, resolve
from orbit_runner.config.schema.trainer import TrainerConfig
from orbit_runner.errors import RunnerError
from orbit_runner.jobs.gin_bindings import bind_gin
from orbit_runner.jobs.preflight import check_before_start, setting_error_scope
from orbit_runner.jobs.remote_runs import local_run_scope
from orbit_runner.profiling.profile import Profile, read_profile
from orbit_runner.reporting.profile import profile_sections
from orbit_runner.reporting.terminal import section_lines
from orbit_runner.storage.paths import is_remote
from orbit_runner.train.callbacks.base import Callback, Logs
from orbit_runner.utils.garbage_collection import paused_collection_scope
from orbit_runner.utils.streams import use_utf8

if TYPE_CHECKING:
    from orbit_runner.config.schema.experiment import ExperimentConfig
    from orbit_runner.train.callbacks.base import RunView

_DESCRIPTION = """\
Show where the time of a training step goes: by op, by layer, and whether the input limits it.

A RUN was profiled with trainer.profile_steps; its newest trace is read. An EXPERIMENT is profiled
now: a few steps run in a temporary directory, without evaluations and checkpoints. Pass a run as
--experiment to profile its config now."""
_STEPS = 20
_ROWS = 10
# Steps before the profiled ones. The first builds the graph, and the pipeline fills its buffers.
_WARM_UP = 10
_MODE = "train"


def main(flags: argparse.Namespace) -> int:
    """Prints the profile of a run or of an experiment. Returns 0."""
    profile = _read_run_profile(flags) if _is_run(flags) else _profile_experiment(flags)
    use_utf8()
    if flags.json:
        print(json.dumps(profile.as_dict(), indent=2))
        return 0
    print("\n".join(section_lines(profile_sections(profile, flags.top))))
    return 0


def _add_flags(parser: Parser) -> None:
    parser.add_argument(
        "profiled",
        nargs="?",
        metavar="RUN|EXPERIMENT",
        type=EXPERIMENT,
        help="a run directory, or another directory with a trace; or an experiment, as in "
        "--experiment",
    )
    parser.add_argument(
        "--steps",
        type=_parse_count,
        metavar="N",
        help=f"number of steps of an experiment to profile (default: {_STEPS})",
    )
    parser.add_argument(
        "--top", type=_parse_count, default=_ROWS, metavar="N", help="number of rows of each table"
    )
    parser.add_argument(
        "--keep",
        type=OUTPUT_DIRECTORY,
        help="keep the trace of an experiment in DIR, for TensorBoard",
    )
    parser.add_argument("--json", action="store_true", help="print all rows as JSON, in seconds")
    add_progress_flags(parser)
    add_config_flags(parser)


def _parse_count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1_000_000:
        raise argparse.ArgumentTypeError(f"got {text!r}, allowed: a number from 1 to 1000000")
    return int(text)


def _is_run(flags: argparse.Namespace) -> bool:
    """Returns whether the argument is a directory, and not an experiment."""
    given = flags.profiled or ""
    return os.path.isdir(given) or (is_remote(given) and not given.endswith(SUFFIXES))


def _read_run_profile(flags: argparse.Namespace) -> Profile:
    request = dataclasses.asdict(build_request(flags))
    extra = [f"--{name}" for name in ("steps", "keep") if getattr(flags, name) is not None]
    if extra or request != dataclasses.asdict(Request()):
        what = "has no effect" if extra else "config flags have no effect"
        raise RunnerError(
            f"{what}, because {flags.profiled} is a directory, whose trace is read\n"
            f"to profile its experiment now: runner profile --experiment={flags.profiled} …",
            path=extra[0] if extra else "",
            code="no-effect",
        )
    with local_run_scope(flags.profiled, "RUN", None) as directory:
        return read_profile(directory)


def _profile_experiment(flags: argparse.Namespace) -> Profile:
    apply_argument(flags, flags.profiled, "EXPERIMENT")
    resolved = resolve(build_request(flags))
    _require_single_process(resolved)
    print_notes(resolved)
    steps = flags.steps or _STEPS
    resolved = dataclasses.replace(resolved, config=_profiling_config(resolved.config, steps))
    with messages_scope(flags), tempfile.TemporaryDirectory(prefix="profile-") as place:
        directory = Path(place)
        check_before_start(resolved, _MODE, directory)
        _train(flags, resolved, directory)
        profile = dataclasses.replace(read_profile(directory), trace="")
        if flags.keep:
            profile = dataclasses.replace(profile, trace=flags.keep)
            _copy_trace(directory / "train", Path(flags.keep))
    return profile


def _require_single_process(resolved: ResolvedConfig) -> None:
    runtime = resolved.config.runtime
    if runtime.traits.is_clustered:
        path = "runtime.distribution_strategy"
        message = (
            f"got {runtime.distribution_strategy!r}, but an experiment is profiled in one process\n"
            "use --distribution_strategy=mirrored, or set trainer.profile_steps and run it"
        )
        raise ConfigError([Problem(path, message, resolved.origin(path), "not-supported")])


def _profiling_config(config: ExperimentConfig, steps: int) -> ExperimentConfig:
    """Returns the config of a run that does nothing but the steps."""
    trainer: TrainerConfig = config.trainer
    last = _WARM_UP + steps
    return config.replace(
        trainer=trainer.replace(
            train_steps=last,
            train_epochs=0.0,
            profile_steps=(_WARM_UP + 1, last),
            # One loop, so that the profiled steps are not interrupted.
            steps_per_loop=last,
            summary_interval=last,
            watch_interval=0,
            checkpoint_interval=0,
            validation_interval=0,
            validation_epochs=0.0,
            best_checkpoint_export_subdir="",
            best_checkpoint_eval_metric="",
            export_subdir="",
            export_checkpoint=None,
            export_weights=None,
            export_formats=(),
            early_stopping=None,
            # The weights of these steps do not matter.
            recovery_max_trials=-1,
        ),
        callbacks=(),
        trackers=(),
    )


class _StepsProfiled(Exception):
    """Ends the run after the last step, before it saves a checkpoint."""


class _StopAfterLastStep(Callback):
    """Ends the run after its last step."""

    def on_loop_end(self, run: RunView, logs: Logs) -> None:
        """Raises `_StepsProfiled` at the last step."""
        if run.step >= run.train_steps:
            raise _StepsProfiled


def _train(flags: argparse.Namespace, resolved: ResolvedConfig, directory: Path) -> None:
    from orbit_runner.distribute.tf_environment import prepare_environment

    config = resolved.config
    progress = progress_of(flags, f"profile {config.name}")
    with progress.shown_scope(), setting_error_scope(resolved):
        progress.phase("importing tensorflow")
        prepare_environment(config.runtime)
        with paused_collection_scope():
            importlib.import_module("tensorflow")
            from orbit_runner import train_lib

            bind_gin(resolved)
            strategy, task = train_lib.prepare(config, str(directory), mode=_MODE)
        try:
            train_lib.run_experiment(
                strategy,
                task,
                _MODE,
                config,
                str(directory),
                save_summary=False,
                callbacks=[progress, _StopAfterLastStep()],
            )
        except _StepsProfiled:
            progress.phase("reading the trace")


def _copy_trace(trace: Path, place: Path) -> None:
    try:
        shutil.copytree(trace, place, dirs_exist_ok=True)
    except OSError as error:
        raise RunnerError(
            f"cannot write {place}: {error.strerror or error}", path="--keep", code="not-writable"
        ) from error


COMMAND = Command("profile", _DESCRIPTION, _add_flags, ["digits --steps=50"], main)
