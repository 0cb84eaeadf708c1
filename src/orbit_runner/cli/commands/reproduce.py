"""`runner reproduce`: runs saved configs again and reports whether the weights are the same."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from orbit_runner import exit_codes
from orbit_runner.cli.command import Command, emit
from orbit_runner.cli.flags.config_flags import (
    IMPORT,
    PROGRESS_FLAGS,
    library_output_scope,
    progress_of,
)
from orbit_runner.cli.flags.rows import JSON, flag
from orbit_runner.cli.flags.values import MODEL_DIR, RUN
from orbit_runner.compare.histories import loss_text
from orbit_runner.errors import RunnerError, format_count
from orbit_runner.repeat.plan import MACHINE_SETTINGS, check_outside
from orbit_runner.repeat.reproduce import (
    PublishedReproduction,
    Reproduction,
    names_published_run,
    plan_reproduction,
    plan_trials,
    reproduce_published,
    reproduce_run,
    reproduce_trials,
)
from orbit_runner.sweep.directory import SweepDirectory
from orbit_runner.utils.files import to_jsonable
from orbit_runner.utils.text_table import table_lines

_DESCRIPTION = """\
Run the config of a run again in a separate directory, up to the newest intact checkpoint of that
run. Then compare all checkpoints that both runs saved, and print where they first differ. A branch
is repeated from the step at which it branches off.
The run itself is not changed, and may still be in progress. The exit code is 0 if the runs are
equal, and 4 if not.

If RUN is the directory of a sweep, all its trials that have finished are repeated, or those of
--trial, one after another. The exit code is 0 if all of them are equal, and 4 if not.

Instead of a run, RUN may be an experiment whose fingerprint is published, such as `digits`: it is
trained with portable numerics, and compared with the weights that every machine gets. As for
--experiment, a run directory of this name takes precedence; a note says so.

--SECTION.NAME=VALUE changes settings of the machine: threads, XLA, and data directories."""


def main(flags: argparse.Namespace) -> int:
    """Runs a saved config again and compares. Returns 0 if both runs are equal, else 4."""
    run = Path(flags.run)
    if SweepDirectory(run).file.is_file():
        return _reproduce_sweep(flags, run)
    if flags.trial:
        raise RunnerError(f"{run} is no sweep\nremove it", path="--trial", code="no-effect")
    imports, changes = tuple(flags.imports or ()), tuple(flags.overrides)
    is_published = names_published_run(flags.run)
    if is_published:
        _check_published(flags)
    result: Reproduction | PublishedReproduction
    error = None
    plan = None if is_published else plan_reproduction(run, imports, changes)
    with _directory_scope(flags.model_dir, run) as directory:
        progress = progress_of(flags, "reproduce", flags.run)
        with library_output_scope(flags):
            if plan is None:
                result = reproduce_published(flags.run, directory, progress, imports)
            else:
                result, error = reproduce_run(plan, directory, progress)
        if result.equal and not flags.model_dir:
            shutil.rmtree(directory, ignore_errors=True)
            result = dataclasses.replace(result, again="")
        values = {"equal": result.equal, "verdict": result.verdict}
        values |= to_jsonable(dataclasses.asdict(result))
        emit(flags, values, _lines(result))
        if error is not None:
            raise error
    return 0 if result.equal else exit_codes.DIFFERENT


def _reproduce_sweep(flags: argparse.Namespace, sweep: Path) -> int:
    runs = plan_trials(sweep, flags.trial or ())
    model_dir = _require_new_directory(Path(flags.model_dir), sweep) if flags.model_dir else None
    passed = [f"--import={name}" for name in flags.imports or ()]
    passed += [f"--{path}={text}" for _, path, text in flags.overrides]
    runs = [*reproduce_trials(sweep, runs, model_dir, passed)]
    equal = [bool(run.equal) for run in runs if run.is_repeated]
    count = format_count(len(equal), "run")
    verdict = f"equal: {count}" if all(equal) else f"differs: {equal.count(False)} of {count}"
    values = {"equal": all(equal), "verdict": verdict, "runs": [*map(dataclasses.asdict, runs)]}
    rows = [(run.directory, run.verdict, run.again) for run in runs]
    code = 0 if all(equal) else exit_codes.DIFFERENT
    return emit(flags, values, [verdict, *table_lines(rows, indent="  ")], code)


def _check_published(flags: argparse.Namespace) -> None:
    if flags.overrides:
        raise RunnerError(
            f"cannot be combined with the published experiment {flags.run!r}, whose steps and "
            "settings are fixed\nremove it",
            path=flags.overrides[0][0],
            code="conflict",
        )


@contextlib.contextmanager
def _directory_scope(model_dir: str | None, run: Path) -> Iterator[Path]:
    """Yields the new run directory; deletes a temporary one on `RunnerError` and Ctrl-C."""
    if model_dir is not None:
        yield _require_new_directory(Path(model_dir), run)
        return
    directory = Path(tempfile.mkdtemp(prefix="reproduce-"))
    try:
        yield directory
    except (RunnerError, KeyboardInterrupt):
        shutil.rmtree(directory, ignore_errors=True)
        raise


def _require_new_directory(directory: Path, run: Path) -> Path:
    check_outside(directory, run)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise RunnerError(
            f"{directory} is not empty\nuse a new directory, or omit the flag",
            path="--model_dir",
            code="already-exists",
        )
    return directory


def _lines(result: Reproduction | PublishedReproduction) -> Iterator[str]:
    yield result.verdict
    if isinstance(result, Reproduction):
        rows = [*_rows(result)]
    else:
        rows = [("weights", f"sha256 {result.weights}")]
        rows += [] if result.equal else [("published", f"sha256 {result.published}")]
        rows += [("holds for", result.versions)]
    rows += [("note", note) for note in result.notes]
    rows += [("new run", result.again)] if result.again else []
    yield from (f"  {name:<12} {value}" for name, value in rows)


def _rows(result: Reproduction) -> Iterator[tuple[str, str]]:
    diff = result.parting
    for name in ("weights", "state"):
        left, right = (getattr(side, name, "") for side in (diff.left, diff.right))
        yield name, f"sha256 {left}"
        if right != left:
            yield "", f"sha256 {right} in the new run" if right else "none in the new run"
    yield "run", result.run
    if diff.loss is not None:
        change = f"{loss_text(diff.loss.left)} → {loss_text(diff.loss.right)}"
        yield "loss", f"first differs in the record of step {diff.loss.step}: {change}"
    if result.error:
        yield "stopped by", result.error


_FLAGS = (
    flag("run", "run directory, sweep, or an experiment whose fingerprint is published", type=RUN),
    flag(
        "--trial=N",
        "of a sweep, repeat only the trial with this number; may be repeated",
        type=int,
        action="append",
    ),
    flag(
        "--model_dir",
        "new directory, always kept; by default a temporary one, kept only if the runs differ",
        type=MODEL_DIR,
    ),
    IMPORT,
    *PROGRESS_FLAGS,
    JSON,
)
COMMAND = Command(
    "reproduce",
    _DESCRIPTION,
    _FLAGS,
    ["runs/a"],
    main,
    settings=MACHINE_SETTINGS,
    settings_rule="the saved config determines the weights; only settings of the machine can be "
    "changed",
)
