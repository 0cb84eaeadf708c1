"""Sections of comparisons: runs side by side, and two groups of runs with common seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from orbit_runner.compare.paired import PairedComparison, PairedMetric
from orbit_runner.compare.runs import RunComparison, format_value
from orbit_runner.compare.statistics import (
    estimate_text,
    interval_text,
    permutation_text,
    verdict,
)
from orbit_runner.reporting.document import Chart, Section, Series, Table, Text
from orbit_runner.reporting.numbers import duration_or_dash, number_or_dash
from orbit_runner.run_directory.run_data import RunData

_T = TypeVar("_T")

# The last lines of a comparison, and the reason for the note about many metrics.
_METHODS = (
    "mean ± standard deviation over seeds [95 % confidence interval of the mean, Student 1908]",
    "difference: paired t-test by seed (Student 1908); sign-flip permutation test (Fisher 1935)",
)


def comparison_section(comparison: RunComparison, curves: Sequence[tuple[str, str]]) -> Section:
    """Returns the table of a comparison, and the charts of some curves (split and metric)."""
    blocks: list[tuple[str, list[list[str]]]] = [
        ("", _summary_rows(comparison)),
        ("settings that differ", _rows(comparison.settings(), format_value)),
        ("software that differs", _rows(comparison.software(), format_value)),
        ("last evaluation and last training record", _rows(comparison.metrics(), number_or_dash)),
        ("best evaluation", _rows(comparison.best(), number_or_dash)),
    ]
    rows: list[list[str]] = []
    for title, block in blocks:
        rows += [[title], *block] if title and block else block
    steps = zip(comparison.names, comparison.common_steps(), strict=True)
    marks = {step: f"{name} branches off" for name, step in steps if step is not None}
    charts = [
        Chart(
            comparison.title(key),
            [
                Series(name, points, comparison.names.index(name))
                for name, points in comparison.own_curve(key).items()
            ],
            marks=marks,
        )
        for key in curves
    ]
    table = Table(rows, head=["", *comparison.names], keys=True)
    return Section("", [table, *charts])


def _rows(values: Mapping[str, Sequence[_T]], text: Callable[[_T], str]) -> list[list[str]]:
    return [[name, *map(text, row)] for name, row in values.items()]


def _summary_rows(comparison: RunComparison) -> list[list[str]]:
    """Returns what every run has: status, step, time, speed, devices and weights."""
    columns: list[tuple[str, Callable[[RunData], str]]] = [
        ("experiment", lambda run: run.experiment or "-"),
        ("status", lambda run: run.summary.status),
        ("step", lambda run: f"{run.summary.step:,}"),
        ("wall time", lambda run: duration_or_dash(run.seconds)),
        ("steps/s, median", lambda run: number_or_dash(run.steps_per_second)),
        ("devices", lambda run: run.devices or "-"),
        ("weights", lambda run: run.weights[:12] or "-"),
    ]
    rows = [[name, *map(text, comparison.runs)] for name, text in columns]
    branches = comparison.branches()
    if any(branches):
        rows.insert(1, ["branch", *(text or "-" for text in branches)])
    return [*rows, ["", *comparison.weights()]]


def paired_sections(comparison: PairedComparison) -> Iterator[Section]:
    """Yields the sections of a comparison: what is compared, each metric, and notes."""
    seeds = ", ".join(map(str, comparison.seeds))
    names = [("A", comparison.first.name), ("B", comparison.second.name)]
    yield Section("", [Table([*names, ("", f"{len(comparison.seeds)} seeds: {seeds}")])])
    for title, values in (
        ("settings that differ", comparison.settings()),
        ("software that differs", comparison.software()),
    ):
        rows = [(path, *map(format_value, row)) for path, row in values.items()]
        yield Section(title, [Table(rows, head=("", "A", "B"), fits=True)])
    for metric in comparison.metrics:
        yield Section(metric.name, [Table(_metric_rows(metric)), _metric_chart(metric, comparison)])
    notes = [*_METHODS, *(f"note: {text}" for text in comparison.notes())]
    yield Section("", [Text(text, "soft") for text in notes])


def _metric_rows(metric: PairedMetric) -> list[tuple[str, str]]:
    test = metric.test
    rows = [
        (letter, f"{estimate_text(spread)} {interval_text(spread)}".rstrip())
        for letter, spread in zip("AB", metric.estimates, strict=True)
    ]
    effect = "" if test.effect_size is None else f"effect size {test.effect_size:.2g}"
    details = "; ".join(filter(None, [effect, permutation_text(test)]))
    return [*rows, ("B - A", verdict(test)), *([("", details)] if details else [])]


def _metric_chart(metric: PairedMetric, comparison: PairedComparison) -> Chart:
    """Returns a chart with a line from A to B for each seed, and one for the means."""
    seeds = [
        Series(f"seed {seed}: {before:.5g}, {after:.5g}", {0: before, 1: after}, quiet=True)
        for seed, before, after in zip(comparison.seeds, metric.first, metric.second, strict=True)
    ]
    first, second = metric.estimates
    mean = Series("mean", {0: first.mean, 1: second.mean})
    return Chart(metric.name.replace("_", " "), [*seeds, mean], places="AB")
