"""`runner compare --paired`: tests whether differences over seeds are significant."""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from orbit_runner.compare.paired import (
    PairedComparison,
    PairedMetric,
    compare_paired,
    seed_group,
)
from orbit_runner.compare.runs import short_names
from orbit_runner.compare.statistics import Estimate, verdict
from orbit_runner.errors import RunnerError
from orbit_runner.run_directory.run_data import read_run
from orbit_runner.utils.files import to_jsonable, write_output
from orbit_runner.utils.streams import use_utf8

_TITLES = (
    *("a", "b", "metric", "seeds", "a_mean", "a_deviation", "b_mean", "b_deviation"),
    *("difference", "low", "high", "t", "p", "permutation_p", "effect_size", "more_than_chance"),
)


def print_paired_comparison(
    directories: Mapping[str, Sequence[Path]], flags: argparse.Namespace
) -> int:
    """Compares the runs of each directory with those of the first one, paired by seed.

    Args:
        directories: The run directories in each directory, by its name on the command line.
        flags: The flags of `runner compare`.

    Returns:
        The exit code, 0.

    Raises:
        RunnerError: The runs cannot be paired.
    """
    if len(directories) < 2:
        raise RunnerError(
            f"--paired: got {len(directories)} directory, allowed: at least 2\n"
            "each contains runs of several seeds, such as DIR/trials/0007 of a sweep"
        )
    names = short_names([Path(name) for name in directories])
    first, *others = (
        seed_group(name, [read_run(path, name) for path in paths])
        for name, paths in zip(names, directories.values(), strict=True)
    )
    found = [compare_paired(first, other, flags.metric or ()) for other in others]
    if flags.html:
        from orbit_runner.reporting.html.comparison_page import paired_page

        write_page(Path(flags.html), paired_page(found))
    use_utf8()
    if flags.json:
        print(json.dumps(to_jsonable({"paired": [_as_dict(one) for one in found]}), indent=2))
    elif flags.csv:
        rows = (row for one in found for row in _csv_rows(one))
        csv.writer(sys.stdout, lineterminator="\n").writerows([_TITLES, *rows])
    elif not flags.html:
        from orbit_runner.reporting.text.comparison import format_paired

        width = shutil.get_terminal_size((120, 24)).columns
        print("\n\n".join("\n".join(format_paired(one, width)) for one in found))
    return 0


def _as_dict(comparison: PairedComparison) -> dict[str, Any]:
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


def _metric_dict(metric: PairedMetric) -> dict[str, Any]:
    test, (first, second) = metric.test, metric.estimates
    return {
        "a": {"values": metric.first, **_estimate_dict(first)},
        "b": {"values": metric.second, **_estimate_dict(second)},
        "difference": _estimate_dict(test.difference),
        "t": test.t,
        "p": test.p,
        "permutation_p": test.permutation_p,
        "effect_size": test.effect_size,
        "more_than_chance": test.is_significant,
        "verdict": verdict(test),
    }


def _estimate_dict(found: Estimate) -> dict[str, Any]:
    return {"mean": found.mean, "deviation": found.deviation, "interval": found.interval}


def _csv_rows(comparison: PairedComparison) -> Iterator[list[Any]]:
    names = [comparison.first.name, comparison.second.name]
    for metric in comparison.metrics:
        test = metric.test
        spreads = [value for one in metric.estimates for value in (one.mean, one.deviation)]
        low, high = test.difference.interval or (None, None)
        tested = [test.difference.mean, low, high, test.t, test.p, test.permutation_p]
        rest = [test.effect_size, str(test.is_significant).lower()]
        values = [*names, metric.name, len(comparison.seeds), *spreads, *tested, *rest]
        yield ["" if value is None else value for value in values]


def write_page(path: Path, page: str) -> None:
    """Writes a page, and prints its path on standard error."""
    try:
        write_output(path, page)
    except OSError as error:
        raise RunnerError(f"--html: cannot write {path}: {error.strerror}") from error
    print(f"the comparison is in {path}", file=sys.stderr)
