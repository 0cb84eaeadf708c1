"""`runner run`: trains, evaluates, or both."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from orbit_runner import exit_codes
from orbit_runner.checkpoint.disk_errors import disk_error_scope
from orbit_runner.cli.command import SECTIONS, Command, emit
from orbit_runner.cli.continuation import change_flags, continuation
from orbit_runner.cli.flags.config_flags import (
    CONFIG_FLAGS,
    PROGRESS_FLAGS,
    build_request,
    library_output_scope,
    progress_of,
)
from orbit_runner.cli.flags.rows import JSON, Flag, Group, flag
from orbit_runner.cli.flags.values import MODEL_DIR, Count, PathValue
from orbit_runner.config.errors import note_text
from orbit_runner.config.resolve import ResolvedConfig, resolve
from orbit_runner.config.schema.modes import FINE_TUNING, MODES, TRAINING
from orbit_runner.distribute.cluster.resolver import adapt_to_role, resolve_cluster
from orbit_runner.errors import ExportFailed, RunnerError
from orbit_runner.jobs.finetune import fine_tune_continuously, watched_directory
from orbit_runner.jobs.preflight import (
    check_before_start,
    check_same_config,
    setting_error_scope,
)
from orbit_runner.jobs.train_job import (
    Job,
    check_data,
    default_model_dir,
    prepare_process,
    run_job,
    serve,
)
from orbit_runner.reporting.results import result_lines
from orbit_runner.run_directory.remote_runs import check_remote_run, training_scope
from orbit_runner.run_directory.run_lock import RunLock, refused_start_scope
from orbit_runner.storage.paths import is_remote, local_path, local_run_directory
from orbit_runner.train.schedule import check_stop_step
from orbit_runner.utils.log import note

_DESCRIPTION = """\
Train, evaluate, or both.

A run keeps all its files in one directory (--model_dir, or runs/NAME/TIME). If started again with
the same directory, it resumes from the last checkpoint. Ctrl-C saves a checkpoint and exits."""

_ALL_MODES = (*MODES, FINE_TUNING)


def main(flags: argparse.Namespace) -> int:
    """Runs an experiment. Returns the exit code."""
    if flags.stop_at_step is not None and flags.mode not in TRAINING:
        raise RunnerError(
            f"has no effect with --mode={flags.mode}\nremove it",
            path="--stop_at_step",
            code="no-effect",
        )
    if flags.mode == FINE_TUNING:
        return _fine_tune(flags)
    if flags.pretrain_steps is not None:
        raise RunnerError(
            f"has no effect with --mode={flags.mode}\nremove it, or use --mode={FINE_TUNING}",
            path="--pretrain_steps",
            code="no-effect",
        )
    return start_run(flags, resolve(build_request(flags)))


def _fine_tune(flags: argparse.Namespace) -> int:
    """Fine-tunes from each checkpoint that another run writes. Returns the exit code."""
    resolved = resolve(build_request(flags))
    watched = watched_directory(resolved)
    if not flags.model_dir:
        raise RunnerError(
            f"is not set; --mode={FINE_TUNING} requires it, to create a run directory "
            "in it for each checkpoint",
            path="--model_dir",
            code="not-set",
        )
    replaced = dict.fromkeys(("mode", "model_dir", "pretrain_steps"))
    return fine_tune_continuously(
        watched,
        local_path(flags.model_dir, f"--model_dir with --mode={FINE_TUNING}"),
        # Each fine-tuning has a run directory of its own.
        ["--mode=train_and_eval", "--json", *change_flags(flags.arguments, replaced)],
        timeout=resolved.config.trainer.continuous_eval_timeout,
        last_step=flags.pretrain_steps,
    )


def start_run(flags: argparse.Namespace, resolved: ResolvedConfig) -> int:
    """Starts or resumes a run with parsed flags of `runner run`. Returns the exit code."""
    # Other commands that train have no such flag.
    stop_at_step = getattr(flags, "stop_at_step", None)
    if stop_at_step is not None and resolved.config.trainer.train_steps:
        # Otherwise, the last step follows from `train_epochs`, and is known when the run is built.
        check_stop_step(stop_at_step, resolved.config.trainer.train_steps)
    with _run_directory_scope(flags, resolved) as model_dir:
        job = _make_job(flags, resolved, model_dir)
        if job.writes_results and resolved.notes:
            note(note_text(resolved.notes))
        if job.is_server:
            return serve(job)
        if not (job.mode in TRAINING and job.writes_results):
            return _run_job(job, flags)
        with refused_start_scope(job.model_dir):
            with disk_error_scope(job.model_dir):
                # Never released: threads that save checkpoints may write until the process exits.
                RunLock(job.model_dir).acquire()
            if flags.resume == "same":
                check_same_config(resolved, job.model_dir)
            return _run_job(dataclasses.replace(job, data=check_data(job)), flags)


@contextlib.contextmanager
def _run_directory_scope(flags: argparse.Namespace, resolved: ResolvedConfig) -> Iterator[Path]:
    """Yields the run directory, or its local copy if it is in an object store."""
    if not is_remote(flags.model_dir or ""):
        yield choose_model_dir(flags, resolved)
        return
    url = flags.model_dir
    is_alone = resolve_cluster(resolved.config.runtime, os.environ) is None
    check_remote_run(url, flags.mode, is_alone=is_alone)
    # Check before anything is downloaded.
    check_before_start(resolved, flags.mode, local_run_directory(url))
    with training_scope(url) as directory:
        yield directory


def _make_job(flags: argparse.Namespace, resolved: ResolvedConfig, model_dir: Path) -> Job:
    cluster = check_before_start(resolved, flags.mode, model_dir)
    if cluster is not None and not flags.model_dir:
        raise RunnerError(
            "is not set, but the members of a cluster share one run directory\n"
            "pass the same --model_dir, on shared storage, to every member",
            path="--model_dir",
            code="not-set",
        )
    with setting_error_scope(resolved):
        config, mode = adapt_to_role(resolved.config, flags.mode, cluster)
    return Job(
        resolved=resolved,
        config=config,
        mode=mode,
        model_dir=model_dir,
        cluster=cluster,
        asynchronous=flags.enable_async_checkpointing == "true",
        resume=flags.resume,
        stop_at_step=getattr(flags, "stop_at_step", None),
    )


def flags_of_run(model_dir: PathValue) -> Sequence[Flag | Group]:
    """Returns the flags of `runner run`; `model_dir` is which run directories it accepts."""
    return (
        flag("--mode=MODE", f"one of: {', '.join(_ALL_MODES)}", default="train_and_eval"),
        flag("--model_dir", "run directory (default: runs/NAME/TIME)", type=model_dir),
        flag(
            "--resume",
            "same: resume only if the data and all settings that affect the weights are the same; "
            "override: always resume",
            choices=("same", "override"),
            default="same",
        ),
        flag(
            "--enable_async_checkpointing",
            "save checkpoints in the background; false: training waits until they are saved",
            nargs="?",
            const="true",
            default="true",
            choices=("true", "false"),
        ),
        flag(
            "--pretrain_steps=STEPS",
            f"with --mode={FINE_TUNING}: last step of the pretraining",
            type=Count(),
        ),
        flag(
            "--stop_at_step=STEP",
            "save a checkpoint at this step and exit; the same command without it continues",
            type=Count(),
        ),
        *PROGRESS_FLAGS,
        JSON,
        *CONFIG_FLAGS,
    )


def choose_model_dir(flags: argparse.Namespace, resolved: ResolvedConfig) -> Path:
    """Returns the run directory: `--model_dir`, or `runs/NAME/TIME` by default."""
    if flags.model_dir:
        return Path(flags.model_dir)
    return default_model_dir(resolved.config.name)


def _run_job(job: Job, flags: argparse.Namespace) -> int:
    from orbit_runner.reporting.results import run_title

    title = run_title(job.config.name, job.mode)
    place = flags.model_dir or str(job.model_dir)
    progress = progress_of(flags, title, place, brief=not job.writes_results)
    with progress.shown_scope():
        progress.phase("importing tensorflow")
        with setting_error_scope(job.resolved), disk_error_scope(job.model_dir):
            prepare_process(job)
            try:
                with library_output_scope(flags):
                    _, results = run_job(job, progress)
            except (RunnerError, KeyboardInterrupt) as error:
                error.continuation = continuation(job, place, error)  # type: ignore[union-attr]
                if getattr(error, "exit_code", 1) == 0:  # `--stop_at_step`, which is not an error.
                    note(str(error))
                raise
    # All members of a cluster have the same results.
    code = exit_codes.DIVERGED if results.non_finite_metrics else 0
    if job.writes_results:
        if is_remote(flags.model_dir or ""):
            results = dataclasses.replace(results, model_dir=flags.model_dir)
        emit(flags, results.as_dict(), result_lines(results))
    if results.export_problem and not code:
        raise ExportFailed(results.export_problem)
    return code


COMMAND = Command(
    "run",
    _DESCRIPTION,
    flags_of_run(dataclasses.replace(MODEL_DIR, remote=True)),
    ["--experiment=digits --model_dir=runs/a"],
    main,
    settings=SECTIONS,
)
