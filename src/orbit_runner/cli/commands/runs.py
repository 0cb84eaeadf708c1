"""`runner runs`: lists runs with their status, progress and results."""

from __future__ import annotations

import argparse
import csv
import io
import json
from collections.abc import Sequence

from orbit_runner.cli.command import Command, emit
from orbit_runner.cli.flags.rows import Group, flag, switch
from orbit_runner.cli.flags.values import RUN_DIRECTORIES, Count
from orbit_runner.cli.run_table import DEFAULT_COLUMNS, RunColumns, parse_condition
from orbit_runner.run_directory.run_reader import RunReader, read_runs
from orbit_runner.utils.files import to_jsonable
from orbit_runner.utils.streams import print_message, print_result
from orbit_runner.utils.text_table import TABLE_KINDS, markup_lines, table_lines, terminal_width

_DESCRIPTION = """\
List the runs in a directory: status, progress, results, age, and the settings that override the
experiment file. The status is running, finished, stopped (--stop_at_step), diverged,
preempted (SIGTERM), interrupted (Ctrl-C), failed, or lost: the process ended without recording why,
for example after SIGKILL.

--where, --sort and --columns accept the columns below, metrics, and settings. A metric is that of
the best evaluation if the run keeps it, otherwise of the last one. best.accuracy and last.accuracy
select one of them, and test.accuracy what `runner evaluate --split=test` found last. Durations have
a unit: s, min, h or d.

columns: run status reason experiment mode step train_steps progress metric best_step age idle
starts seed weights parent branch_step changes"""


def main(flags: argparse.Namespace) -> int:
    """Prints the runs in the given directories. Returns 0."""
    runs = read_runs(flags.directories or ["runs"], inside_runs=True)
    columns = RunColumns(runs)
    names = _select_columns(flags, columns)
    chosen = _select_runs(runs, columns, flags)
    if flags.csv:
        text = io.StringIO()
        values = ([_csv_value(columns.value(run, name)) for name in names] for run in chosen)
        csv.writer(text, lineterminator="\n").writerows([names, *values])
        print_result(text.getvalue(), is_data=True)
    elif chosen or flags.json:
        table = [names, *([columns.text(run, name) for name in names] for run in chosen)]
        lines = markup_lines(table, flags.table) if flags.table else _format_table(table)
        emit(flags, [_as_dict(run, columns, names) for run in chosen], lines)
    if not chosen:
        where = ", ".join(flags.directories or ["runs"])
        print_message(f"no runs in {where}" if not runs else "no run matches --where")
    return 0


def _select_columns(flags: argparse.Namespace, columns: RunColumns) -> list[str]:
    text = flags.columns or ""
    requested = [name.strip() for name in text.lstrip("+").split(",") if name.strip()]
    for name in requested:
        columns.check(name, "--columns")
    if requested and not text.startswith("+"):
        return requested
    # Before `changes`, which may be long.
    names = [*DEFAULT_COLUMNS[:-1], *requested, DEFAULT_COLUMNS[-1]]
    return list(dict.fromkeys(names))


def _select_runs(
    runs: Sequence[RunReader], columns: RunColumns, flags: argparse.Namespace
) -> list[RunReader]:
    if flags.condition:
        condition = parse_condition(flags.condition, columns)
        runs = [run for run in runs if condition(run)]
    present = sorted(runs, key=lambda run: -(run.started or 0.0))
    absent: list[RunReader] = []
    if flags.sort:
        columns.check(flags.sort, "--sort")
        absent = [run for run in present if columns.value(run, flags.sort) is None]
        present = [run for run in present if columns.value(run, flags.sort) is not None]
        sign = -1.0 if columns.better_values(flags.sort) == "lower" else 1.0
        present.sort(key=lambda run: _sort_key(columns.value(run, flags.sort), sign), reverse=True)
    return [*present, *absent][: flags.limit]


def _sort_key(value: object, sign: float) -> tuple[bool, float, str]:
    """Returns a key that orders numbers before texts, and NaN before all other numbers.

    With a `sign` of -1, smaller numbers are last.
    """
    if isinstance(value, (int, float)):
        return False, float("-inf") if value != value else sign * float(value), ""
    return True, 0.0, str(value)


def _format_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns the lines of a table. On a terminal, the last column is cut to fit."""
    lines = table_lines(rows)
    width = terminal_width()
    if width is None:
        return lines
    return [line if len(line) <= width else f"{line[: width - 1]}…" for line in lines]


def _as_dict(run: RunReader, columns: RunColumns, names: Sequence[str]) -> dict[str, object]:
    """Returns everything that is known about a run, and the columns that were asked for."""
    own = ("started", "active", "metrics", "best", "best_metric", "changes", "non_finite_metrics")
    known = {name: columns.value(run, name) for name in (*columns.fields, *names)}
    values: dict[str, object] = to_jsonable(known | {name: getattr(run, name) for name in own})
    return values


def _csv_value(value: object) -> object:
    if value is None:
        return ""
    return value if isinstance(value, (int, float, str)) else json.dumps(value)


_FLAGS = (
    RUN_DIRECTORIES,
    flag(
        "--where=CONDITION",
        "list only matching runs, such as 'accuracy > 0.98 and age < 2h'",
        dest="condition",
    ),
    flag(
        "--sort=NAME",
        "sort by a metric, the best first, or by a column or setting, the largest first "
        "(default: newest first)",
    ),
    flag(
        "--columns=NAMES",
        "columns to show, separated by commas; +NAMES adds them to the default",
    ),
    flag("--limit=N", "list at most N runs", type=Count()),
    Group(
        [
            switch("--json", "print JSON: a list of objects, one for each run"),
            switch("--csv", "print CSV"),
            flag("--table", "print a table for a document", choices=TABLE_KINDS),
        ]
    ),
)
COMMAND = Command("runs", _DESCRIPTION, _FLAGS, ["--where='accuracy > 0.9'"], main)
