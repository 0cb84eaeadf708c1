"""Sections of comparisons: runs side by side, and two groups of runs with common seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from orbit_runner.compare.paired import PairedComparison, PairedMetric
from orbit_runner.compare.runs import RunComparison, format_value
from orbit_runner.compare.statistics import (
    difference_text,
    estimate_text,
    interval_text,
    p_text,
    verdict,
)
from orbit_runner.reporting.document import Cell, Chart, Section, Series, Table, Text
from orbit_runner.reporting.numbers import format_duration, number_or_dash
from orbit_runner.run_directory.metric_records import better_values, metric_title
from orbit_runner.run_directory.run_reader import NON_METRICS, RunReader

_T = TypeVar("_T")
_MOST_PLACE = 14  # characters of the name of a group below a chart

# The last lines of a comparison, and the reason for the note about many metrics.
_METHODS = (
    "mean ± standard deviation over seeds [95 % confidence interval of the mean, Student 1908]",
    "difference: paired t-test by seed (Student 1908)",
)


def comparison_section(comparison: RunComparison, curves: Sequence[tuple[str, str]]) -> Section:
    """Returns the results, the table and the charts of some curves (split and metric)."""
    rows: list[list[str]] = []
    for title, block in _blocks(comparison):
        rows += [[title], *block] if title and block else block
    table = Table(rows, head=["", *comparison.names], keys=True)
    charts = [(name, _curve_chart(comparison, (split, name))) for split, name in curves]
    others = [chart for name, chart in charts if name in NON_METRICS]
    metrics = [chart for name, chart in charts if name not in NON_METRICS]
    return Section(
        "",
        [
            table,
            *(metrics or others),
            *([Section("speed", others, is_folded=True)] if metrics else []),
        ],
    )


def _blocks(comparison: RunComparison) -> Iterator[tuple[str, list[list[str]]]]:
    """Yields the rows of the table with their titles: what decides first."""
    note = f", in brackets: difference from {comparison.names[0]}" if comparison.runs[1:] else ""
    for title, values in (
        ("best evaluation", comparison.best()),
        ("last evaluation and last training record", comparison.metrics()),
        ("newest evaluations of other splits", comparison.split_metrics()),
    ):
        first = comparison.main_metric
        names = sorted(values, key=lambda name: name != first)
        rows = [[name, *_metric_cells(comparison, name, values[name])] for name in names]
        if rows and title == "best evaluation":
            steps = (run.best_step for run in comparison.runs)
            rows.append(["step", *("-" if step is None else f"{step:,}" for step in steps)])
        yield f"{title}{note if rows else ''}", rows
        note = "" if rows else note
    yield "settings that differ", _rows(comparison.settings(), format_value)
    yield "runs", _summary_rows(comparison)
    yield "software that differs", _rows(comparison.software(), format_value)


def _metric_cells(
    comparison: RunComparison, name: str, values: Sequence[float | None]
) -> Iterator[str]:
    """Yields the values of a metric, the best ones marked, with the difference from the first."""
    winners = comparison.winners(name, values)
    reference = values[0]
    for number, value in enumerate(values):
        text = number_or_dash(value)
        if number and value is not None and reference is not None and value != reference:
            difference = value - reference
            text += f" ({difference:+.3g})" if math.isfinite(difference) else ""
        yield Cell(text, "best") if number in winners else text


def _curve_chart(comparison: RunComparison, key: tuple[str, str]) -> Chart:
    best_steps = {
        name: run.best_step
        for name, run in zip(comparison.names, comparison.runs, strict=True)
        if key == ("validation", run.best_metric)
    }
    series = [
        Series(name, points, comparison.names.index(name), best=best_steps.get(name))
        for name, points in comparison.curve(key).items()
    ]
    return Chart(comparison.title(key), series)


def _rows(values: Mapping[str, Sequence[_T]], text: Callable[[_T], str]) -> list[list[str]]:
    return [[name, *map(text, row)] for name, row in values.items()]


def _summary_rows(comparison: RunComparison) -> list[list[str]]:
    """Returns what every run has: status, step, time, speed, devices and weights."""
    columns: list[tuple[str, Callable[[RunReader], str]]] = [
        ("experiment", lambda run: run.title or "-"),
        ("status", lambda run: run.status),
        ("step", lambda run: f"{run.step:,}"),
        ("wall time", lambda run: format_duration(run.seconds)),
        ("steps/s, median", lambda run: number_or_dash(run.steps_per_second)),
        ("devices", lambda run: run.devices or "-"),
        ("weights", lambda run: run.newest_weights[:12] or "-"),
    ]
    rows = [[name, *map(text, comparison.runs)] for name, text in columns]
    return [*rows, ["", *comparison.weights()]]


def paired_sections(comparison: PairedComparison) -> Iterator[Section]:
    """Yields the sections of a comparison: the differences, what is compared, and details."""
    seeds = ", ".join(map(str, comparison.seeds))
    names = [("A", comparison.first.name), ("B", comparison.second.name)]
    yield Section("", [Table([*names, ("", f"{len(comparison.seeds)} seeds: {seeds}")])])
    head = ("metric", "better", "B - A [95 % interval]", "p")
    differences = [_difference_row(metric) for metric in comparison.metrics]
    yield Section("differences", [Table(differences, head=head, fits=True)])
    for title, values in (
        ("settings that differ", comparison.settings()),
        ("software that differs", comparison.software()),
    ):
        rows = [(path, *map(format_value, row)) for path, row in values.items()]
        yield Section(title, [Table(rows, head=("", "A", "B"), fits=True)])
    for metric in comparison.metrics:
        yield Section(metric.name, [Table(_metric_rows(metric), sentences=True)])
    charts = [_metric_chart(metric, comparison) for metric in comparison.metrics]
    yield Section("each seed and the mean", charts)
    notes = [*_METHODS, *(f"note: {text}" for text in comparison.notes())]
    yield Section("", [Text(text, "soft") for text in notes])


def _difference_row(metric: PairedMetric) -> tuple[str, str, str, str]:
    """Returns the name of a metric, the better group, the difference and the p-value."""
    test = metric.test
    difference = test.difference
    if not difference.mean and not difference.deviation:
        return metric.name, "equal", "0", "-"
    text = difference_text(difference)
    p = p_text(test.p).removeprefix("p ").removeprefix("= ")
    if not test.is_significant:
        return metric.name, "could be chance", text, p
    better = better_values(metric.name)
    if not better:
        return metric.name, "B is higher" if difference.mean > 0 else "B is lower", text, p
    winner = "B" if (difference.mean > 0) == (better == "higher") else "A"
    return metric.name, Cell(winner, "best"), text, p


def _metric_rows(metric: PairedMetric) -> list[tuple[str, str]]:
    test = metric.test
    rows = [
        (letter, f"{estimate_text(spread)} {interval_text(spread)}".rstrip())
        for letter, spread in zip("AB", metric.estimates, strict=True)
    ]
    effect = [] if test.effect_size is None else [("", f"effect size {test.effect_size:.2g}")]
    result = verdict(test).partition(": ")[2]  # The number of seeds is above.
    return [("B - A", result), *effect, *rows]


def _metric_chart(metric: PairedMetric, comparison: PairedComparison) -> Chart:
    """Returns a chart with a line from A to B for each seed, and one for the means."""
    seeds = [
        Series(f"seed {seed}: {before:.5g}, {after:.5g}", {0: before, 1: after}, quiet=True)
        for seed, before, after in zip(comparison.seeds, metric.first, metric.second, strict=True)
    ]
    first, second = metric.estimates
    mean = Series("mean", {0: first.mean, 1: second.mean})
    names = (comparison.first.name, comparison.second.name)
    is_short = max(map(len, names)) <= _MOST_PLACE
    places = [f"A: {names[0]}", f"B: {names[1]}"] if is_short else "AB"
    return Chart(metric_title(metric.name), [*seeds, mean], places=places)
