"""`runner clean`: deletes checkpoints and runs that are no longer needed."""

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
from orbit_runner.cli.flags.values import DIRECTORY
from orbit_runner.cli.run_table import RunColumns, parse_condition
from orbit_runner.config.durations import DurationError, duration_seconds
from orbit_runner.errors import RunnerError, format_count, unknown_name_message
from orbit_runner.jobs.clean import Plan, Rules, delete_items, make_plan
from orbit_runner.run_directory.run_summary import STATUSES, RunSummary, find_runs, read_summaries
from orbit_runner.utils.streams import use_utf8
from orbit_runner.utils.text_table import table_lines

_DESCRIPTION = """\
Delete checkpoints, or whole runs, that are no longer needed. The command shows what it would
delete, and deletes it with --yes, or after you have answered y.

It never touches a run that another process may be training, the latest checkpoint of a run that it
keeps, files that the runner did not write, and what symbolic links point to."""
_FAILED = ("failed", "diverged")
_UNITS = ("B", "kB", "MB", "GB", "TB")


def main(flags: argparse.Namespace) -> int:
    """Shows what would be deleted, and deletes it if the user agrees. Returns 0."""
    rules = _make_rules(flags)
    roots = [require_directory(name) for name in flags.directories or ["runs"]]
    plans = [make_plan(run, rules) for run in _select_runs(read_summaries(roots), flags)]
    nonempty_plans = [plan for plan in plans if plan.items]
    use_utf8()
    if not flags.json:
        _print_table(nonempty_plans, "would delete")
    untouched = {
        str(plan.run.path): plan.untouched_reason for plan in plans if plan.untouched_reason
    }
    is_agreed = bool(nonempty_plans) and (flags.yes or (not flags.json and _confirm()))
    deleted: list[Plan] = []
    if is_agreed:
        untouched |= _delete_all(nonempty_plans, rules)
        deleted = [plan for plan in nonempty_plans if str(plan.run.path) not in untouched]
    if flags.json:
        print(json.dumps(_as_dict(nonempty_plans, deleted, untouched), indent=2))
    else:
        _print_report(nonempty_plans, deleted, advice="" if is_agreed else " (--yes deletes it)")
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
        "--keep_last", type=int, metavar="K", help="all checkpoints but the K latest of each run"
    )
    what.add_argument(
        "--keep_best",
        nargs="?",
        type=int,
        const=1,
        metavar="K",
        help="all best checkpoints but the K best of each run (default of K: 1)",
    )
    what.add_argument("--delete_runs", action="store_true", help="whole run directories")
    what.add_argument(
        "--failed",
        action="store_true",
        help=f"the same as --delete_runs --status={','.join(_FAILED)}",
    )
    which = parser.add_argument_group("of which runs")
    which.add_argument("--status", metavar="LIST", help=f"some of: {', '.join(STATUSES)}")
    which.add_argument(
        "--older_than", metavar="DURATION", help="without a record for this time, such as 30d"
    )
    which.add_argument(
        "--where",
        dest="condition",
        metavar="CONDITION",
        help="matching runs, such as 'accuracy < 0.9', as for `runner runs`",
    )
    parser.add_argument("--yes", action="store_true", help="delete without asking")
    parser.add_argument("--json", action="store_true", help="print JSON; delete only with --yes")


def _make_rules(flags: argparse.Namespace) -> Rules:
    for name in ("keep_last", "keep_best"):
        value = getattr(flags, name)
        if value is not None and value < 1:
            raise RunnerError(
                f"got {value}, allowed: at least 1", path=f"--{name}", code="out-of-range"
            )
    keeps = flags.keep_last is not None or flags.keep_best is not None
    if flags.failed and flags.status:
        raise RunnerError(
            "cannot be combined with --status; use --delete_runs", path="--failed", code="conflict"
        )
    if not (flags.delete_runs or flags.failed):
        if not keeps:
            raise RunnerError(
                "clean: no flag specifies what to delete\n"
                "allowed: --keep_last=K, --keep_best=K, --delete_runs, --failed",
                code="nothing-selected",
            )
        return Rules(keep_last=flags.keep_last, keep_best=flags.keep_best)
    if keeps:
        raise RunnerError(
            "--keep_last, --keep_best: have no effect if whole run directories are deleted\n"
            "run the command twice",
            code="no-effect",
        )
    return Rules(delete_reason=_deletion_reason(flags))


def _deletion_reason(flags: argparse.Namespace) -> str:
    """Returns why runs are deleted. Raises `RunnerError` if nothing selects them."""
    given = {
        "status": ",".join(_FAILED) if flags.failed else flags.status,
        "older than": flags.older_than,
        "where": flags.condition,
    }
    reasons = [f"{name} {value}" for name, value in given.items() if value]
    named = flags.directories and all([*find_runs(Path(d))] == [Path(d)] for d in flags.directories)
    if not reasons and not named:
        raise RunnerError(
            "would delete all runs\n"
            "name run directories, or select runs with --status, --older_than or --where",
            path="--delete_runs",
            code="nothing-selected",
        )
    return "; ".join(reasons) or "named"


def _select_runs(runs: Sequence[RunSummary], flags: argparse.Namespace) -> list[RunSummary]:
    text = ",".join(_FAILED) if flags.failed else flags.status or ""
    statuses = [word.strip() for word in text.split(",") if word.strip()]
    for status in statuses:
        if status not in STATUSES:
            raise RunnerError(
                unknown_name_message("status", status, STATUSES),
                path="--status",
                code="not-allowed",
            )
    if flags.condition:
        condition = parse_condition(flags.condition, RunColumns(runs))
        runs = [run for run in runs if condition(run)]
    if flags.older_than:
        end = time.time() - _parse_duration(flags.older_than)
        runs = [run for run in runs if _last_active_time(run) < end]
    return [run for run in runs if not statuses or run.status in statuses]


def _parse_duration(text: str) -> float:
    try:
        return duration_seconds(text)
    except DurationError as error:
        raise RunnerError(str(error), path="--older_than", code="wrong-type") from None


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


def _delete_all(plans: Sequence[Plan], rules: Rules) -> dict[str, str]:
    """Deletes what the plans list. Returns why a run was not touched, by its path."""
    problems = {str(plan.run.path): delete_items(plan, rules) for plan in plans}
    return {path: problem for path, problem in problems.items() if problem}


def _print_table(plans: Sequence[Plan], title: str) -> None:
    rows = [
        (
            os.path.relpath(plan.run.path),
            plan.run.status,
            item.label,
            item.reason,
            format_size(item.bytes),
        )
        for plan in plans
        for item in plan.items
    ]
    if not rows:
        return
    rows = [("run", "status", title, "why", "size"), *rows]
    print("\n".join(table_lines(rows, right=[-1])))
    for plan in plans:
        if plan.unknown_files:
            shown = ", ".join(plan.unknown_files[:3]) + (
                ", …" if len(plan.unknown_files) > 3 else ""
            )
            print(f"{os.path.relpath(plan.run.path)} keeps files of other programs: {shown}")


def _print_report(plans: Sequence[Plan], deleted: Sequence[Plan], advice: str) -> None:
    if not plans:
        print("nothing to delete")
        return
    total = format_size(sum(plan.bytes for plan in deleted or plans))
    if deleted:
        print(f"deleted {total} of {format_count(len(deleted), 'run')}")
    else:
        print(f"total: {total} of {format_count(len(plans), 'run')}; nothing was deleted{advice}")


def format_size(count: float) -> str:
    """Returns a number of bytes as a short text, such as `1.5 GB`."""
    for unit in _UNITS:
        if count < 1000 or unit == _UNITS[-1]:
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"


def _as_dict(
    plans: Sequence[Plan], deleted: Sequence[Plan], untouched: dict[str, str]
) -> dict[str, object]:
    runs = [
        {
            "run": os.path.relpath(plan.run.path),
            "status": plan.run.status,
            "deleted": plan in deleted,
            "bytes": plan.bytes,
            "items": [
                {"what": item.label, "why": item.reason, "bytes": item.bytes, "files": item.files}
                for item in plan.items
            ],
            "left": plan.unknown_files,
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
