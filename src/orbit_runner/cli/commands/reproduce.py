"""`runner reproduce`: runs a saved config again and reports whether the weights are the same."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from orbit_runner import exit_codes
from orbit_runner.cli.command import Command, Parser, emit
from orbit_runner.cli.flags.config_flags import (
    add_import_flag,
    add_progress_flags,
    library_output_scope,
    messages_scope,
    progress_of,
)
from orbit_runner.cli.flags.values import MODEL_DIR, RUN, Count
from orbit_runner.compare.histories import loss_text
from orbit_runner.errors import RunnerError, format_count
from orbit_runner.repeat.plan import MACHINE_SETTINGS, check_outside
from orbit_runner.repeat.reproduce import (
    PublishedReproduction,
    Reproduction,
    names_published_run,
    plan_reproduction,
    reproduce_published,
    reproduce_run,
)

_DESCRIPTION = """\
Run the config of a run again in a separate directory, up to the newest intact checkpoint of that
run. Then compare all checkpoints that both runs saved, and print where they first differ. A branch
is repeated from the step at which it branches off.
The run itself is not changed, and may still be in progress. The exit code is 0 if the runs are
equal, and 4 if not.

Instead of a run, RUN may be an experiment whose fingerprint is published, such as `digits`: it is
trained with portable numerics, and compared with the weights that every machine gets. As for
--experiment, a run directory of this name takes precedence; a note says so.

--SECTION.NAME=VALUE changes settings of the machine: threads, XLA, and data directories."""
_SETTINGS_RULE = (
    "the saved config determines the weights; only settings of the machine can be changed"
)


def main(flags: argparse.Namespace) -> int:
    """Runs a saved config again and compares. Returns 0 if both runs are equal, else 4."""
    if names_published_run(flags.run):
        return _reproduce_published(flags)
    with messages_scope(flags):
        result = _reproduce(flags, Path(flags.run))
    return 0 if result.equal else exit_codes.DIFFERENT


def _reproduce(flags: argparse.Namespace, run: Path) -> Reproduction:
    plan = plan_reproduction(run, flags.last, tuple(flags.imports or ()), tuple(flags.overrides))
    with _directory_scope(flags.model_dir, run) as directory:
        progress = progress_of(flags, "reproduce", flags.run)
        with library_output_scope(flags):
            result, error = reproduce_run(plan, directory, progress)
        if result.equal and not flags.model_dir:
            shutil.rmtree(directory, ignore_errors=True)
            result = dataclasses.replace(result, again="")
        emit(flags, result.as_dict(), _lines(_verdict(result), _rows(result)))
        if error is not None:
            raise error
    return result


def _reproduce_published(flags: argparse.Namespace) -> int:
    given = [] if flags.last is None else ["--last"]
    given += [flag for flag, _, _ in flags.overrides]
    if given:
        raise RunnerError(
            f"cannot be combined with the published experiment {flags.run!r}, whose steps and "
            "settings are fixed\nremove it",
            path=given[0],
            code="conflict",
        )
    with messages_scope(flags), _directory_scope(flags.model_dir, Path(flags.run)) as directory:
        progress = progress_of(flags, "reproduce", flags.run)
        result = reproduce_published(
            flags.run, directory, progress, imports=tuple(flags.imports or ())
        )
        if result.equal and not flags.model_dir:
            shutil.rmtree(directory, ignore_errors=True)
            result = dataclasses.replace(result, again="")
        has = "has the published weights" if result.equal else "does not have the published weights"
        verdict = f"{'equal' if result.equal else 'differs'}: `{result.experiment}` {has} at step"
        lines = _lines(f"{verdict} {result.step}", _published_rows(result))
        emit(flags, result.as_dict(), lines)
    return 0 if result.equal else exit_codes.DIFFERENT


def _add_flags(parser: Parser) -> None:
    parser.settings = MACHINE_SETTINGS
    parser.settings_rule = _SETTINGS_RULE
    parser.add_argument(
        "run",
        type=RUN,
        help="run directory, or an experiment whose fingerprint is published",
    )
    parser.add_argument(
        "--last",
        type=Count(),
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


def _lines(verdict: str, rows: Iterable[tuple[str, str]]) -> list[str]:
    return [verdict, *(f"  {name:<12} {value}" for name, value in rows)]


def _verdict(result: Reproduction) -> str:
    diff = result.parting
    if result.equal:
        begin = "" if result.start is None else f", repeated from step {result.start}"
        return (
            f"equal: {format_count(len(diff.compared), 'checkpoint')} up to step {diff.step}{begin}"
        )
    if diff.first is None:
        return f"differs: the new run did not reach step {diff.step}"
    what = "the weights" if diff.first == diff.first_weights else "the state, not the weights,"
    since = ", the first checkpoint that was compared"
    if diff.last_equal is not None:
        since = f"; equal up to step {diff.last_equal}"
    return f"differs: {what} at step {diff.first}{since}"


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
    for note in result.notes:
        yield "note", note
    if result.again:
        yield "new run", result.again


def _published_rows(result: PublishedReproduction) -> Iterator[tuple[str, str]]:
    yield "weights", f"sha256 {result.weights}"
    if not result.equal:
        yield "published", f"sha256 {result.published}"
    yield "holds for", result.versions
    for note in result.notes:
        yield "note", note
    if result.again:
        yield "new run", result.again


COMMAND = Command("reproduce", _DESCRIPTION, _add_flags, ["runs/a --last=100"], main)
