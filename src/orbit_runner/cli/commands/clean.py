"""`runner clean`: deletes checkpoints that are no longer needed."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from orbit_runner.cli.command import Command, emit
from orbit_runner.cli.flags.rows import Group, flag, switch
from orbit_runner.cli.flags.values import RUN_DIRECTORIES, Count
from orbit_runner.errors import RunnerError, format_count
from orbit_runner.jobs.clean import Plan, delete_items, make_plan
from orbit_runner.reporting.numbers import bytes_text
from orbit_runner.run_directory.run_reader import read_runs
from orbit_runner.utils.streams import print_message, print_result
from orbit_runner.utils.text_table import table_lines

_DESCRIPTION = """\
Delete checkpoints that are no longer needed. The command shows what it would delete, and deletes it
with --yes.

It never touches a run that another process may be training, the latest checkpoint of a run, and
what symbolic links point to."""


def main(flags: argparse.Namespace) -> int:
    """Shows what would be deleted, and deletes it if the user agrees. Returns 0."""
    rules = {"keep_last": flags.keep_last, "keep_best": flags.keep_best}
    if not any(rules.values()):
        raise RunnerError(
            "clean: no flag specifies what to delete\nallowed: --keep_last=K, --keep_best=K",
            code="nothing-selected",
        )
    runs = read_runs(flags.directories or ["runs"])
    every_plan = [make_plan(run, **rules) for run in runs]
    plans = [plan for plan in every_plan if plan.items]
    untouched = {plan.run.path: plan.untouched_reason for plan in every_plan}
    if plans and not flags.json:
        print_result("\n".join(_table(plans)))
    if flags.yes:
        untouched |= {plan.run.path: delete_items(plan) for plan in plans}
    untouched = {path: reason for path, reason in untouched.items() if reason}
    deleted = [plan for plan in plans if flags.yes and plan.run.path not in untouched]
    summary = _summary(plans, deleted, "" if flags.yes else " (--yes deletes it)")
    emit(flags, _as_dict(plans, deleted, untouched), [summary])
    for path, reason in untouched.items():
        print_message(f"not touched: {os.path.relpath(path)}: {reason}")
    return 0


def _table(plans: Sequence[Plan]) -> list[str]:
    rows = [
        (os.path.relpath(plan.run.path), plan.run.status, item.label, bytes_text(item.bytes))
        for plan in plans
        for item in plan.items
    ]
    return table_lines([("run", "status", "to delete", "size"), *rows], right=[-1])


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


_FLAGS = (
    RUN_DIRECTORIES,
    Group(
        [
            flag("--keep_last=K", "all checkpoints but the K latest of each run", type=Count()),
            flag("--keep_best=K", "all best checkpoints but the K best of each run", type=Count()),
        ],
        "what to delete",
    ),
    switch("--yes", "delete it"),
    switch("--json", "print JSON; delete only with --yes"),
)
COMMAND = Command("clean", _DESCRIPTION, _FLAGS, ["--keep_last=1"], main)
