"""Comparisons of runs, and of groups of runs paired by seed, as text for a terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from orbit_runner.compare.paired import PairedComparison, PairedMetric
from orbit_runner.compare.runs import RunComparison, format_value
from orbit_runner.compare.statistics import (
    estimate_text,
    interval_text,
    permutation_text,
    verdict,
)
from orbit_runner.reporting.html.svg_axes import is_logarithmic
from orbit_runner.reporting.numbers import duration_or_dash, number_or_dash

_GAP = 2
_NARROWEST, _LEAST_CUT, _WIDEST = 10, 18, 48
_PLOT_WIDTH, _PLOT_HEIGHT = 64, 10
_MARKS = "abcdefghijklmnopqrstuvwxyz"

Row = tuple[str, Sequence[str]]
# Printed below the comparison, and the reason for the note about many metrics.
METHODS = (
    "mean ± standard deviation over seeds [95 % confidence interval of the mean, Student 1908]",
    "difference: paired t-test by seed (Student 1908); sign-flip permutation test (Fisher 1935)",
)
_MANY_METRICS = 3


def format_comparison(
    comparison: RunComparison, curves: Sequence[tuple[str, str]], width: int
) -> Iterator[str]:
    """Yields the lines of a comparison.

    Args:
        comparison: The comparison.
        curves: (split, metric) of the curves to draw.
        width: The width of the terminal, in characters.
    """
    names = [f"[{_mark(index)}] {name}" for index, name in enumerate(comparison.names)]
    blocks = [(title, rows) for title, rows in _blocks(comparison) if rows]
    heads = [len(name) for _, rows in blocks for name, _ in rows]
    first = min(max(heads, default=0), max(20, width // 2))
    for part in _column_groups(names, blocks, width - first):
        yield "  ".join(
            [" " * first, *(f"{names[index]:<{size}}" for index, size in part)]
        ).rstrip()
        for title, rows in blocks:
            if title:
                yield ""
                yield title
            for name, values in rows:
                texts = [f"{_cut(values[index], size):<{size}}" for index, size in part]
                yield "  ".join([f"{_cut(name, first):<{first}}", *texts]).rstrip()
        yield ""
    for key in curves:
        found = comparison.own_curve(key)
        yield from draw_curves(comparison.title(key), found, comparison.names, width)
        yield ""


def summary_rows(comparison: RunComparison) -> list[Row]:
    """Returns what every run has: status, step, time, speed, devices and weights."""
    runs = comparison.runs
    rows: list[tuple[str, Callable[[Any], str]]] = [
        ("experiment", lambda run: run.experiment or "-"),
        ("status", lambda run: run.summary.status),
        ("step", lambda run: f"{run.summary.step:,}"),
        ("wall time", lambda run: duration_or_dash(run.seconds)),
        ("steps/s, median", lambda run: number_or_dash(run.steps_per_second)),
        ("devices", lambda run: run.devices or "-"),
        ("weights", lambda run: run.weights[:12] or "-"),
    ]
    found = [(name, [text(run) for run in runs]) for name, text in rows]
    branches = comparison.branches()
    if any(branches):
        found.insert(1, ("branch", [text or "-" for text in branches]))
    return [*found, ("", comparison.weights())]


def metric_rows(values: Mapping[str, Sequence[float | None]]) -> list[Row]:
    """Returns metrics as rows of texts."""
    return [(name, [number_or_dash(value) for value in row]) for name, row in values.items()]


def difference_rows(values: Mapping[str, Sequence[Any]]) -> list[Row]:
    """Returns settings as rows of texts."""
    return [(path, [format_value(value) for value in row]) for path, row in values.items()]


def _blocks(comparison: RunComparison) -> list[tuple[str, list[Row]]]:
    return [
        ("", summary_rows(comparison)),
        ("settings that differ", difference_rows(comparison.settings())),
        ("software that differs", difference_rows(comparison.software())),
        ("last evaluation and last training record", metric_rows(comparison.metrics())),
        ("best evaluation", metric_rows(comparison.best())),
    ]


def _column_groups(
    names: Sequence[str], blocks: Sequence[tuple[str, list[Row]]], width: int
) -> Iterator[list[tuple[int, int]]]:
    """Yields groups of (column, width) that fit on the terminal, one below the other."""
    longest = []
    for index, name in enumerate(names):
        texts = [name, *(values[index] for _, rows in blocks for _, values in rows)]
        longest.append(max(_NARROWEST, *map(len, texts)))
    sizes = _column_sizes(longest, width)
    group: list[tuple[int, int]] = []
    used = 0
    for index, size in enumerate(sizes):
        if group and used + size + _GAP > width:
            yield group
            group, used = [], 0
        group.append((index, min(size, max(_NARROWEST, width - _GAP))))
        used += size + _GAP
    if group:
        yield group


def _column_sizes(longest: Sequence[int], width: int) -> list[int]:
    """Returns the widths of columns; the widest are narrowed until all fit, but not too much."""
    for limit in range(_WIDEST, _LEAST_CUT - 1, -1):
        sizes = [min(size, limit) for size in longest]
        if sum(sizes) + _GAP * len(sizes) <= width:
            break
    return sizes


def draw_curves(
    title: str, curves: Mapping[str, Mapping[int, float]], names: Sequence[str], width: int
) -> Iterator[str]:
    """Yields the lines of a plot in which each run has a letter.

    Args:
        title: The name of the metric.
        curves: Values by name of the run and step.
        names: The names of all runs, which determine the letters.
        width: The width of the plot, in characters.
    """
    points = [(step, value) for curve in curves.values() for step, value in curve.items()]
    finite = [(step, value) for step, value in points if math.isfinite(value)]
    if not finite:
        yield f"{title}: no values"
        return
    first, last = min(step for step, _ in points), max(step for step, _ in points)
    low, high = min(value for _, value in finite), max(value for _, value in finite)
    is_log = is_logarithmic(title, low, high)
    scale: Callable[[float], float] = math.log if is_log else float
    height = (scale(high) - scale(low)) or 1.0
    yield f"{title} (log)" if is_log else title
    columns = max(16, min(_PLOT_WIDTH, width - 14))
    cells = [[" "] * columns for _ in range(_PLOT_HEIGHT)]
    for name, curve in curves.items():
        for step, value in curve.items():
            if math.isfinite(value):
                column = round((step - first) / ((last - first) or 1) * (columns - 1))
                row = round((scale(high) - scale(value)) / height * (_PLOT_HEIGHT - 1))
                mark = _mark(names.index(name))
                cells[row][column] = mark if cells[row][column] in (" ", mark) else "*"
    for row, line in enumerate(cells):
        label = {0: high, _PLOT_HEIGHT - 1: low}.get(row)
        shown = "" if label is None else number_or_dash(label)
        yield f"{shown:>10} │{''.join(line)}".rstrip()
    yield f"{'':>10} └{'─' * columns}"
    start, end = f"{first:,}", f"step {last:,}"
    yield f"{'':>12}{start}{end:>{columns - len(start)}}"


def _mark(index: int) -> str:
    return _MARKS[index % len(_MARKS)]


def _cut(text: str, size: int) -> str:
    return text if len(text) <= size else f"{text[: size - 1]}…"


def format_paired(comparison: PairedComparison, width: int) -> Iterator[str]:
    """Yields the lines of a comparison, most of which fit in `width` characters."""
    seeds = ", ".join(map(str, comparison.seeds))
    yield f"A  {comparison.first.name}"
    yield f"B  {comparison.second.name}"
    yield f"   {len(comparison.seeds)} seeds: {seeds}"
    for title, rows in (
        ("settings that differ", comparison.settings()),
        ("software that differs", comparison.software()),
    ):
        if rows:
            yield ""
            yield title
            for path, (before, after) in rows.items():
                line = f"  {path}  A {format_value(before)}  B {format_value(after)}"
                yield line if len(line) <= width else f"{line[: width - 1]}…"
    for metric in comparison.metrics:
        yield ""
        yield from _metric_lines(metric)
    yield ""
    yield from METHODS
    for text in [*comparison.notes(), *many_metrics(comparison)]:
        yield f"note: {text}"


def _metric_lines(metric: PairedMetric) -> Iterator[str]:
    test = metric.test
    yield metric.name
    for letter, found in zip("AB", metric.estimates, strict=True):
        yield f"  {letter}      {estimate_text(found)} {interval_text(found)}".rstrip()
    yield f"  B - A  {verdict(test)}"
    effect = "" if test.effect_size is None else f"effect size {test.effect_size:.2g}"
    rest = "; ".join(filter(None, [effect, permutation_text(test)]))
    if rest:
        yield f"         {rest}"


def many_metrics(comparison: PairedComparison) -> list[str]:
    """Returns a note about chance among several metrics; empty for few."""
    count = len(comparison.metrics)
    if count < _MANY_METRICS:
        return []
    return [
        f"{count} metrics were compared: one in 20 without any difference is more than chance at "
        "5 %; choose the metric before you look, with --metric"
    ]
