"""`runner branch`: a new run that continues another one from any step, under changed settings."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from orbit_runner.cli.command import SECTIONS, Command, emit
from orbit_runner.cli.commands.run import start_run
from orbit_runner.cli.flags.config_flags import (
    PROGRESS_FLAGS,
    build_request,
    config_flags,
    library_output_scope,
    parse_step,
    progress_of,
)
from orbit_runner.cli.flags.rows import flag, switch
from orbit_runner.cli.flags.values import MODEL_DIR, RUN
from orbit_runner.config.resolve import ResolvedConfig, resolve
from orbit_runner.config.schema.modes import TRAINING
from orbit_runner.distribute.cluster.resolver import resolve_cluster
from orbit_runner.errors import RunnerError, format_list, unknown_name_message
from orbit_runner.jobs.preflight import check_same_config
from orbit_runner.repeat.branch import (
    BranchPlan,
    describe_branch,
    find_branch_step,
    plan_branch,
    prepare_branch,
)
from orbit_runner.repeat.plan import Repetition, check_outside, read_repetition
from orbit_runner.run_directory.branch import Branch, read_branch
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.run_directory.run_reader import RunReader
from orbit_runner.utils.log import note
from orbit_runner.utils.signals import run_child

_DESCRIPTION = """\
Start a new run that continues another one from step N under changed settings. The new run begins
with the weights, slots and records of step N: the nearest checkpoint of RUN is copied, and the
steps from there to N are repeated exactly. RUN is not changed, and may still be in progress.

The same command continues a branch that was interrupted; so does `runner run --experiment=DIR
--model_dir=DIR`. Without a changed setting, the branch has the weights of RUN. If settings change
only task.train_data.exclude, --at may be omitted: the branch begins at the last checkpoint before
the first excluded example."""


def main(flags: argparse.Namespace) -> int:
    """Creates a branch and trains it. Returns the exit code."""
    run = Path(flags.run)
    directory = Path(flags.model_dir)
    steps, resolved = _resolve_configs(flags, run)
    known = _read_existing_branch(directory, run, flags.at)
    if known is not None:
        check_same_config(resolved, directory)
        flags.mode = flags.mode or RunReader(directory).mode
        if flags.prepare:
            return _print_branch(flags, known)
        return _train_branch(flags, resolved)
    if flags.at is None:
        flags.at, first = find_branch_step(steps, resolved)
        seen = f"first in step {first}" if first else "in no step so far"
        note(f"the excluded examples are {seen}; the branch begins at step {flags.at}")
    _reject_cluster(flags, resolved)
    plan = plan_branch(steps, flags.at, directory, resolved)
    flags.mode = flags.mode or plan.steps.history.mode
    if flags.prepare:
        return _print_branch(flags, _prepare_and_describe(flags, plan))
    return _prepare_and_train(flags, plan)


def _reject_cluster(flags: argparse.Namespace, resolved: ResolvedConfig) -> None:
    """Raises RunnerError if each member of a cluster would create the branch."""
    if flags.prepare or resolve_cluster(resolved.config.runtime, os.environ) is None:
        return
    raise RunnerError(
        "this process is a member of a cluster, and each would create the branch\n"
        "first run the same command with --prepare once, outside of the cluster; then run "
        f"`runner run --experiment={flags.model_dir} --model_dir={flags.model_dir}` on each member",
        path="--prepare",
        code="not-set",
    )


def _prepare_and_train(flags: argparse.Namespace, plan: BranchPlan) -> int:
    if plan.repeats_steps:
        # In a separate process: the steps of the parent may need other devices and threads.
        code, _ = run_child(["branch", *flags.arguments, f"--at={plan.steps.stop}", "--prepare"])
        if code:
            return code
    else:
        _prepare_and_describe(flags, plan)
    return _train_branch(flags, plan.resolved)


def _prepare_and_describe(flags: argparse.Namespace, plan: BranchPlan) -> Branch:
    """Creates the directory in this process, and describes the branch."""
    note(describe_branch(plan))
    if inexact := format_list(plan.reference.inexact):
        note(f"note: the weights of {plan.steps.run} may not be reproducible:\n{inexact}")
    with library_output_scope(flags):
        return prepare_branch(plan, flags.mode, progress_of(flags, "branch", flags.model_dir))


def _resolve_configs(flags: argparse.Namespace, run: Path) -> tuple[Repetition, ResolvedConfig]:
    """Returns the parent, and the config of the branch."""
    if flags.experiment:
        raise RunnerError(
            "a branch has the experiment of RUN\n"
            "change its settings with --SECTION.NAME=VALUE or --config_file",
            path="--experiment",
            code="conflict",
        )
    if flags.mode is not None and flags.mode not in TRAINING:
        raise RunnerError(
            unknown_name_message("mode", flags.mode, TRAINING),
            path="--mode",
            code="not-allowed",
        )
    flags.experiment = str(RunDirectory(run).require_config())
    return read_repetition(run, tuple(flags.imports or ())), resolve(build_request(flags))


def _read_existing_branch(directory: Path, run: Path, at: int | None) -> Branch | None:
    """Returns the branch that a directory contains; None if it is empty or does not exist."""
    check_outside(directory, run)
    if not directory.exists() or (directory.is_dir() and not any(directory.iterdir())):
        return None
    branch = read_branch(directory) if directory.is_dir() else None
    if branch is None:
        raise RunnerError(
            f"{directory} is not empty\nuse a new directory",
            path="--model_dir",
            code="already-exists",
        )
    if branch.parent.resolve() != run.resolve() or at not in (None, branch.step):
        raise RunnerError(
            f"{directory} is a branch of {branch.parent} at step {branch.step}\n"
            "use a new directory, or the same RUN and --at to continue it",
            path="--model_dir",
            code="other-config",
        )
    note(f"{directory} exists: a branch of {branch.parent} at step {branch.step}")
    return branch


def _train_branch(flags: argparse.Namespace, resolved: ResolvedConfig) -> int:
    flags.resume = "same"
    flags.enable_async_checkpointing = "true"
    return start_run(flags, resolved)


def _print_branch(flags: argparse.Namespace, branch: Branch) -> int:
    lines = [
        f"{flags.model_dir}: a branch of {branch.parent} at step {branch.step}",
        f"  weights  sha256 {branch.weights}",
        f"  train    runner run --experiment={flags.model_dir} --model_dir={flags.model_dir}",
    ]
    return emit(flags, {"run": flags.model_dir, **branch.as_dict()}, lines)


_FLAGS = (
    flag("run", "run directory of the run to continue", type=RUN),
    flag("--at=N", "last step that both runs have in common", type=parse_step),
    flag("--model_dir", "run directory of the branch, a new one", type=MODEL_DIR, required=True),
    flag("--mode=MODE", f"one of: {', '.join(TRAINING)} (default: that of RUN)"),
    switch(
        "--prepare",
        "only make the directory; `runner run` with the same --model_dir trains, on a cluster too",
    ),
    *PROGRESS_FLAGS,
    switch("--json", "print the results as JSON; with --prepare, the branch"),
    *config_flags(experiment=argparse.SUPPRESS),
)
COMMAND = Command(
    "branch",
    _DESCRIPTION,
    _FLAGS,
    ["runs/a --at=100 --model_dir=runs/b"],
    main,
    settings=SECTIONS,
)
