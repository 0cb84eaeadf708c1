"""`runner reproduce`: runs a saved config again and reports whether the weights are the same."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from orbit_runner import exit_codes
from orbit_runner.checkpoint.latest_checkpoint import checkpoints_of, latest_intact_record
from orbit_runner.cli.branches.preparation import branch_point_scope
from orbit_runner.cli.command import Command, Parser
from orbit_runner.cli.flags.config_flags import (
    add_import_flag,
    add_progress_flags,
    messages_scope,
    progress_of,
)
from orbit_runner.cli.flags.values import MODEL_DIR, RUN
from orbit_runner.cli.preflight import check_before_start, setting_error_scope
from orbit_runner.cli.published.reproduction import names_published_run, reproduce_published
from orbit_runner.cli.reference_run import (
    MACHINE_SETTINGS,
    OriginalRun,
    check_data,
    check_outside,
    copy_checkpoint,
    difference_reasons,
    leave_best_out,
    limit_steps,
    read_original_run,
)
from orbit_runner.cli.remote_runs import local_run_scope
from orbit_runner.errors import RunnerError, format_list
from orbit_runner.run_directory.branch import read_branch
from orbit_runner.run_directory.history import read_history
from orbit_runner.storage.paths import is_remote
from orbit_runner.utils.garbage_collection import paused_collection_scope
from orbit_runner.utils.user_code import changed_modules, format_names

_DESCRIPTION = """\
Run the config of a run again in a separate directory, up to the newest intact checkpoint of that
run. Then compare all checkpoints that both runs saved, and print where they first differ. A branch
is repeated from the step at which it branches off.
The run itself is not changed, and may still be in progress. The exit code is 0 if the runs are
equal, and 4 if not.

Instead of a run, RUN may be an experiment whose fingerprint is published, such as `digits`: it is
trained with portable numerics, and compared with the weights that every machine gets.

--SECTION.NAME=VALUE changes settings of the machine: threads, XLA, and data directories."""
_SETTINGS_RULE = (
    "the saved config determines the weights; only settings of the machine can be changed"
)


def main(flags: argparse.Namespace) -> int:
    """Runs a saved config again and compares. Returns 0 if both runs are equal, else 4."""
    if names_published_run(flags.run):
        return _reproduce_published(flags)
    needed = None if flags.last is None else "all"
    with messages_scope(flags), local_run_scope(flags.run, "RUN", needed) as run:
        result = _reproduce(flags, run)
    return 0 if result.equal else exit_codes.DIFFERENT


def _reproduce(flags: argparse.Namespace, run: Path) -> Any:
    original = read_original_run(
        run,
        flags.last,
        imports=tuple(flags.imports or ()),
        changes=tuple((f"--{path}", path, text) for path, text in flags.dotted),
    )
    with _directory_scope(flags.model_dir, original.history.folder) as folder:
        from orbit_runner.reporting.reproduction import print_reproduction

        result, error = _repeat_run(original, folder, progress_of(flags, "reproduce", flags.run))
        if result.equal and not flags.model_dir:
            shutil.rmtree(folder, ignore_errors=True)
            result = dataclasses.replace(result, again="")
        if is_remote(flags.run):
            result = dataclasses.replace(result, run=flags.run)
        if flags.json:
            print(json.dumps(result.as_dict(), indent=2, allow_nan=False))
        else:
            print_reproduction(result)
        if error is not None:
            raise error
    return result


def _reproduce_published(flags: argparse.Namespace) -> int:
    given = [] if flags.last is None else ["--last"]
    given += [f"--{path}" for path, _ in flags.dotted]
    if given:
        raise RunnerError(
            f"{given[0]}: cannot be combined with the published experiment {flags.run!r}, whose "
            "steps and settings are fixed\nremove it"
        )
    with messages_scope(flags), _directory_scope(flags.model_dir, Path(flags.run)) as folder:
        from orbit_runner.cli.published.reproduction import print_published_reproduction

        progress = progress_of(flags, "reproduce", flags.run)
        result = reproduce_published(
            flags.run, folder, progress, imports=tuple(flags.imports or ())
        )
        if result.equal and not flags.model_dir:
            shutil.rmtree(folder, ignore_errors=True)
            result = dataclasses.replace(result, again="")
        if flags.json:
            print(json.dumps(result.as_dict(), indent=2))
        else:
            print_published_reproduction(result)
    return 0 if result.equal else exit_codes.DIFFERENT


def _add_flags(parser: Parser) -> None:
    parser.settings, parser.settings_rule = MACHINE_SETTINGS, _SETTINGS_RULE
    parser.add_argument(
        "run",
        type=RUN,
        help="run directory, or an experiment whose fingerprint is published",
    )
    parser.add_argument(
        "--last",
        type=int,
        metavar="K",
        help="repeat at least the last K steps, from the nearest earlier checkpoint (default: all)",
    )
    parser.add_argument(
        "--model_dir",
        type=MODEL_DIR,
        help="new directory, always kept; by default a temporary one, kept only if the runs differ",
    )
    add_import_flag(parser)
    add_progress_flags(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


@contextlib.contextmanager
def _directory_scope(model_dir: str | None, run: Path) -> Iterator[Path]:
    """Yields the new run directory; deletes a temporary one on `RunnerError` and Ctrl-C."""
    if model_dir is not None:
        yield _require_new_directory(Path(model_dir), run)
        return
    folder = Path(tempfile.mkdtemp(prefix="reproduce-"))
    try:
        yield folder
    except (RunnerError, KeyboardInterrupt):
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _require_new_directory(folder: Path, run: Path) -> Path:
    check_outside(folder, run)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunnerError(
            f"--model_dir: {folder} is not empty\nuse a new directory, or omit the flag"
        )
    return folder


def _repeat_run(original: OriginalRun, folder: Path, progress: Any) -> tuple[Any, Exception | None]:
    from orbit_runner.distribute.tf_environment import prepare_environment

    check_before_start(
        limit_steps(original.resolved, original.record.step), original.history.mode, folder
    )
    data = check_data(original)
    if original.start is not None:
        with _source_scope(original) as source:
            copy_checkpoint(checkpoints_of(source), original.start, folder)
        leave_best_out(folder, original.resolved.config.trainer)
    differences = [*difference_reasons(original), *data.notes()]
    with progress.shown_scope():
        if differences:
            run = original.history.folder
            progress.note(
                f"note: differences from the original run in {run}:\n{format_list(differences)}"
            )
        progress.phase("importing tensorflow")
        prepare_environment(original.resolved.config.runtime)
        with setting_error_scope(original.resolved):
            return _compare(original, folder, progress, differences)


@contextlib.contextmanager
def _source_scope(original: OriginalRun) -> Iterator[Path]:
    """Yields a run directory with the checkpoint to start from: the run, unless it removed it."""
    run = original.history.folder
    branch = read_branch(run)
    if branch is None or original.start != branch.step:
        yield run
        return
    with branch_point_scope(run, branch) as source:
        yield source


def _compare(
    original: OriginalRun, folder: Path, progress: Any, differences: list[str]
) -> tuple[Any, Exception | None]:
    with paused_collection_scope():
        from orbit_runner.cli.rerun import rerun
    from orbit_runner.compare.histories import compare_runs
    from orbit_runner.reporting.reproduction import Reproduction

    history, record, after = original.history, original.record, original.after
    done = rerun(original.resolved, history, folder, progress, step=record.step, after=after)
    progress.phase("comparing checkpoints")
    parting = compare_runs(
        history,
        read_history(folder),
        step=record.step,
        after=after,
        summary_interval=original.resolved.config.trainer.summary_interval,
    )
    if record.strategy not in ("", done.strategy):
        differences = [*differences, f"strategy: {record.strategy} → {done.strategy}"]
    again = latest_intact_record(checkpoints_of(folder))
    if again is not None and (names := changed_modules(record.code, again.code)):
        differences = [*differences, f"changed code: {format_names(names)}"]
    result = Reproduction(
        run=str(history.folder),
        again=str(folder),
        start=original.start,
        notes=tuple(differences),
        error=done.error_text,
        parting=parting,
    )
    # Divergence is a result; any other error is raised by the caller.
    return result, None if done.has_diverged else done.error


COMMAND = Command("reproduce", _DESCRIPTION, _add_flags, ["runs/a --last=100"], main)
