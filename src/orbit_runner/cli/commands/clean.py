"""`runner clean`: deletes checkpoints that are no longer needed."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from orbit_runner.cli.command import Command, Parser
from orbit_runner.cli.commands.runs import require_directory
from orbit_runner.cli.flags.values import DIRECTORY, Count
from orbit_runner.config.durations import DurationError, duration_seconds
from orbit_runner.errors import RunnerError, format_count
from orbit_runner.jobs.clean import Plan, Rules, delete_items, make_plan
from orbit_runner.reporting.numbers import bytes_text
from orbit_runner.run_directory.run_summary import RunSummary, read_summaries
from orbit_runner.utils.streams import use_utf8
from orbit_runner.utils.text_table import table_lines

_DESCRIPTION = """\
Delete checkpoints that are no longer needed. The command shows what it would delete, and deletes it
with --yes, or after you have answered y.

It never touches a run that another process may be training, the latest checkpoint of a run, and
what symbolic links point to."""


def main(flags: argparse.Namespace) -> int:
    """Shows what would be deleted, and deletes it if the user agrees. Returns 0."""
    rules = _make_rules(flags)
    roots = [require_directory(name) for name in flags.directories or ["runs"]]
    runs = _select_runs(read_summaries(roots), flags.older_than)
    every_plan = [make_plan(run, rules) for run in runs]
    plans = [plan for plan in every_plan if plan.items]
    untouched = {plan.run.path: plan.untouched_reason for plan in every_plan}
    use_utf8()
    if not flags.json:
        _print_table(plans)
    is_agreed = bool(plans) and (flags.yes or (not flags.json and _confirm()))
    if is_agreed:
        untouched |= {plan.run.path: delete_items(plan, rules) for plan in plans}
    untouched = {path: reason for path, reason in untouched.items() if reason}
    deleted = [plan for plan in plans if is_agreed and plan.run.path not in untouched]
    if flags.json:
        print(json.dumps(_as_dict(plans, deleted, untouched), indent=2))
    else:
        print(_summary(plans, deleted, advice="" if is_agreed else " (--yes deletes it)"))
    for path, reason in untouched.items():
        print(f"not touched: {os.path.relpath(path)}: {reason}", file=sys.stderr)
    return 0


def _add_flags(parser: Parser) -> None:
    parser.add_argument(
        "directories",
        type=DIRECTORY,
        nargs="*",
        help="run directory, or directory that contains runs (default: runs)",
    )
    what = parser.add_argument_group("what to delete")
    what.add_argument(
        "--keep_last",
        type=Count(),
        metavar="K",
        help="all checkpoints but the K latest of each run",
    )
    what.add_argument(
        "--keep_best",
        type=Count(),
        metavar="K",
        help="all best checkpoints but the K best of each run",
    )
    parser.add_argument(
        "--older_than",
        metavar="DURATION",
        help="only runs without a record for this time, such as 30d",
    )
    parser.add_argument("--yes", action="store_true", help="delete without asking")
    parser.add_argument("--json", action="store_true", help="print JSON; delete only with --yes")


def _make_rules(flags: argparse.Namespace) -> Rules:
    if flags.keep_last is None and flags.keep_best is None:
        raise RunnerError(
            "clean: no flag specifies what to delete\nallowed: --keep_last=K, --keep_best=K",
            code="nothing-selected",
        )
    return Rules(keep_last=flags.keep_last, keep_best=flags.keep_best)


def _select_runs(runs: Sequence[RunSummary], older_than: str | None) -> Sequence[RunSummary]:
    if not older_than:
        return runs
    try:
        end = time.time() - duration_seconds(older_than)
    except DurationError as error:
        raise RunnerError(str(error), path="--older_than", code="wrong-type") from None
    return [run for run in runs if _last_active_time(run) < end]


def _last_active_time(run: RunSummary) -> float:
    """Returns when a run last wrote something, in seconds since 1970."""
    known = [when for when in (run.active, run.started) if when is not None]
    return max(known) if known else run.path.stat().st_mtime


def _confirm() -> bool:
    """Asks the user on a terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print("delete? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _print_table(plans: Sequence[Plan]) -> None:
    rows = [
        (os.path.relpath(plan.run.path), plan.run.status, item.label, bytes_text(item.bytes))
        for plan in plans
        for item in plan.items
    ]
    if rows:
        rows = [("run", "status", "to delete", "size"), *rows]
        print("\n".join(table_lines(rows, right=[-1])))


def _summary(plans: Sequence[Plan], deleted: Sequence[Plan], advice: str) -> str:
    if not plans:
        return "nothing to delete"
    total = bytes_text(sum(plan.bytes for plan in deleted or plans))
    if deleted:
        return f"deleted {total} of {format_count(len(deleted), 'run')}"
    return f"total: {total} of {format_count(len(plans), 'run')}; nothing was deleted{advice}"


def _as_dict(
    plans: Sequence[Plan], deleted: Sequence[Plan], untouched: dict[Path, str]
) -> dict[str, object]:
    runs = [
        {
            "run": os.path.relpath(plan.run.path),
            "status": plan.run.status,
            "deleted": plan in deleted,
            "bytes": plan.bytes,
            "items": [
                {"what": item.label, "bytes": item.bytes, "files": item.files}
                for item in plan.items
            ],
        }
        for plan in plans
    ]
    return {
        "runs": runs,
        "bytes": sum(plan.bytes for plan in plans),
        "bytes_deleted": sum(plan.bytes for plan in deleted),
        "not_touched": {os.path.relpath(path): reason for path, reason in untouched.items()},
    }


COMMAND = Command("clean", _DESCRIPTION, _add_flags, ["--keep_last=1"], main)
