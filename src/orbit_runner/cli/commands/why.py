"""`runner why`: finds why two runs differ."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

from orbit_runner import exit_codes
from orbit_runner.cli.command import Command, Parser, emit
from orbit_runner.cli.flags.config_flags import (
    add_import_flag,
    add_progress_flags,
    messages_scope,
    progress_of,
)
from orbit_runner.cli.flags.values import RUN
from orbit_runner.errors import RunnerError
from orbit_runner.repeat.records import RecordedRun, compare_recorded
from orbit_runner.repeat.why import Explanation, format_explanation, rerun_both

_DESCRIPTION = """\
Find out why two runs differ. First compare what both recorded: settings, data, code, versions,
threads and other numerics, checkpoints and losses. If the weights differ, run both again in
temporary directories, each with its own config and environment, from the last checkpoint at which
they are equal, and find the first step that differs, and the first tensor in it: the batch, the
output of a layer, the loss, a gradient or an update. The runs themselves are not changed. The exit
code is 0 if the runs are equal, and 4 if not."""


def main(flags: argparse.Namespace) -> int:
    """Prints why two runs differ. Returns 0 if they are equal, else 4."""
    with messages_scope(flags):
        explanation = _explain(flags, Path(flags.a), Path(flags.b))
    emit(flags, explanation.as_dict(), format_explanation(explanation))
    return 0 if explanation.equal else exit_codes.DIFFERENT


def _add_flags(parser: Parser) -> None:
    parser.add_argument("a", metavar="A", type=RUN, help="run directory")
    parser.add_argument("b", metavar="B", type=RUN, help="the run directory to compare it with")
    parser.add_argument(
        "--recorded",
        action="store_true",
        help="only compare what the runs recorded; do not run them again",
    )
    add_import_flag(parser)
    add_progress_flags(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _explain(flags: argparse.Namespace, left: Path, right: Path) -> Explanation:
    imports = tuple(flags.imports or ())
    runs = RecordedRun(left, "A", imports), RecordedRun(right, "B", imports)
    recorded = compare_recorded(*runs)
    explanation = Explanation(left=flags.a, right=flags.b, recorded=recorded)
    if flags.recorded or (recorded.parting.compared and recorded.parting.first_weights is None):
        return explanation
    progress = progress_of(flags, "why", f"{flags.a} {flags.b}")
    with progress.shown_scope():
        try:
            reruns = rerun_both(runs, recorded.parting, imports, progress.phase)
        except RunnerError as error:
            return dataclasses.replace(explanation, problem=str(error))
    return dataclasses.replace(explanation, reruns=reruns)


COMMAND = Command("why", _DESCRIPTION, _add_flags, ["runs/a runs/b"], main)
