"""`runner compare`: compares runs by settings, metrics, curves, throughput and weights."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_runner.cli.command import Command, emit
from orbit_runner.cli.flags.rows import JSON, Group, flag, switch
from orbit_runner.cli.flags.values import OUTPUT_FILE, RUN, write_flag_output
from orbit_runner.compare.paired import (
    PairedComparison,
    PairedMetric,
    compare_paired,
    seed_group,
)
from orbit_runner.compare.runs import RunComparison, compare, short_names
from orbit_runner.compare.statistics import Estimate, verdict
from orbit_runner.errors import RunnerError, nearest_name_hint
from orbit_runner.reporting.comparison import comparison_section, paired_sections
from orbit_runner.reporting.document import Table
from orbit_runner.reporting.html import page
from orbit_runner.reporting.terminal import section_lines
from orbit_runner.run_directory.run_reader import MOST_POINTS, RunReader, find_runs
from orbit_runner.utils.files import to_jsonable
from orbit_runner.utils.streams import print_result
from orbit_runner.utils.text_table import TABLE_KINDS, markup_lines

if TYPE_CHECKING:
    from orbit_runner.utils.types import JsonObject

_DESCRIPTION = """\
Compare runs: the settings and versions that differ, metrics, curves, throughput and weights. A run
may still be in progress. A directory stands for all runs in it. With --paired, compare directories
of runs with several seeds, and test whether the metrics differ significantly."""

Curve = tuple[str, str]  # (split, metric)


def main(flags: argparse.Namespace) -> int:
    """Prints the comparison, or writes it as a page. Returns 0."""
    directories = {name: _find_run_paths(name) for name in flags.runs}
    if flags.paired:
        pairs = _compare_paired(directories, flags.metric or ())
        sections = [section for pair in pairs for section in paired_sections(pair)]
        values = {"paired": [_paired_as_dict(pair) for pair in pairs]}
        title = "Is the difference chance?"
    else:
        paths = list(dict.fromkeys(path for paths in directories.values() for path in paths))
        # JSON has all points.
        comparison = compare(paths, None) if flags.json else compare(paths)
        curves = _select_curves(comparison, flags.metric or ()) or comparison.curve_keys()
        sections = [comparison_section(comparison, curves)]
        values = _as_dict(comparison, curves)
        title = f"Comparison of {len(comparison.runs)} runs"
    if flags.html:
        write_flag_output("--html", flags.html, page(title, sections))
    if flags.table:
        for section in sections:
            for table in (part for part in section.parts if isinstance(part, Table) and part.rows):
                first, *head = table.head or [""]
                lines = markup_lines([[first or section.title, *head], *table.rows], flags.table)
                print_result("\n".join([*lines, "", ""]))  # A blank line ends a table.
    elif flags.json or not flags.html:
        width = shutil.get_terminal_size((120, 24)).columns
        emit(flags, to_jsonable(values), section_lines(sections, width))
    return 0


def _find_run_paths(name: str) -> list[Path]:
    path = Path(name)
    run_paths = list(find_runs(path))
    if run_paths:
        return run_paths
    if not path.is_dir():
        problem = "is not a directory" if path.exists() else "does not exist"
    else:
        problem = "is not a run directory and contains none"
    raise RunnerError(f"{name} {problem}\n`runner runs` lists runs", path="RUN", code="not-a-run")


def _select_curves(comparison: RunComparison, requested: Sequence[str]) -> list[Curve]:
    """Returns the curves that `--metric` names."""
    known = comparison.curve_keys()
    curves = []
    for name in requested:
        matching = [
            (split, metric) for split, metric in known if name in (metric, f"{split}/{metric}")
        ]
        if not matching:
            names = list(dict.fromkeys(metric for _, metric in known))
            raise RunnerError(
                f"unknown metric {name!r}{nearest_name_hint(name, names)}\n"
                f"allowed: {', '.join(names) or 'none, because no run has records'}",
                path="--metric",
                code="unknown-name",
            )
        curves += matching
    return list(dict.fromkeys(curves))


def _as_dict(comparison: RunComparison, curves: Sequence[Curve]) -> JsonObject:
    return {
        "runs": [
            {
                "run": os.fspath(run.path),
                "status": run.status,
                "step": run.step,
                "seconds": run.seconds,
                "steps_per_second": run.steps_per_second,
                "devices": run.devices,
                "weights": run.newest_weights,
                "compared": compared,
                "parent": run.branch and os.fspath(run.branch.parent),
                "branch_step": run.branch and run.branch.step,
                "metrics": run.metrics,
                "best": run.best,
                "best_step": run.best_step,
            }
            for run, compared in zip(comparison.runs, comparison.weights(), strict=True)
        ],
        "settings": comparison.settings(),
        "software": comparison.software(),
        "splits": comparison.split_metrics(),
        "curves": {
            "/".join(key): {
                run: list(points.items()) for run, points in comparison.curve(key).items()
            }
            for key in curves
        },
    }


def _compare_paired(
    directories: Mapping[str, Sequence[Path]], metrics: Sequence[str]
) -> list[PairedComparison]:
    """Compares the runs of each directory with those of the first one, paired by seed."""
    if len(directories) < 2:
        raise RunnerError(
            f"got {len(directories)} directory, allowed: at least 2\n"
            "each contains runs of several seeds, such as DIR/trials/0007 of a sweep",
            path="--paired",
            code="out-of-range",
        )
    names = short_names([Path(name) for name in directories])
    first, *others = (
        seed_group(name, [RunReader(path, MOST_POINTS) for path in paths])
        for name, paths in zip(names, directories.values(), strict=True)
    )
    return [compare_paired(first, other, metrics) for other in others]


def _paired_as_dict(comparison: PairedComparison) -> JsonObject:
    return {
        "a": comparison.first.name,
        "b": comparison.second.name,
        "seeds": comparison.seeds,
        "settings": comparison.settings(),
        "software": comparison.software(),
        "equal_weights": comparison.has_equal_weights(),
        "notes": list(comparison.notes()),
        "metrics": {metric.name: _metric_dict(metric) for metric in comparison.metrics},
    }


def _metric_dict(metric: PairedMetric) -> JsonObject:
    test = metric.test
    first, second = metric.estimates
    return {
        "a": {"values": metric.first, **_estimate_dict(first)},
        "b": {"values": metric.second, **_estimate_dict(second)},
        "difference": _estimate_dict(test.difference),
        "t": test.t,
        "p": test.p,
        "effect_size": test.effect_size,
        "more_than_chance": test.is_significant,
        "verdict": verdict(test),
    }


def _estimate_dict(value: Estimate) -> JsonObject:
    return {"mean": value.mean, "deviation": value.deviation, "interval": value.interval}


_FLAGS = (
    flag("runs", "run directory, or directory that contains runs", type=RUN, nargs="+"),
    flag(
        "--metric=NAME",
        "show only the curves of this metric in a page and as JSON; may be repeated",
        action="append",
    ),
    switch(
        "--paired",
        "compare the runs of each RUN with those of the first one, paired by runtime.seed: "
        "mean, confidence interval, and paired t-test of each metric",
    ),
    flag("--html", "write an HTML page with charts instead", type=OUTPUT_FILE),
    Group([flag("--table", "print the tables for a document", choices=TABLE_KINDS), JSON]),
)
COMMAND = Command("compare", _DESCRIPTION, _FLAGS, ["runs/a runs/b --html=ab.html"], main)
