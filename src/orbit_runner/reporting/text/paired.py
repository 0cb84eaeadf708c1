"""A paired comparison as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from orbit_runner.reporting.comparison import format_value
from orbit_runner.reporting.paired import PairedComparison, PairedMetric
from orbit_runner.reporting.statistics import (
    estimate_text,
    interval_text,
    permutation_text,
    verdict,
)

# Printed below the comparison, and the reason for the note about many metrics.
METHODS = (
    "mean ± standard deviation over seeds [95 % confidence interval of the mean, Student 1908]",
    "difference: paired t-test by seed (Student 1908); sign-flip permutation test (Fisher 1935)",
)
_MANY = 3


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
    if count < _MANY:
        return []
    return [
        f"{count} metrics were compared: one in 20 without any difference is more than chance at "
        "5 %; choose the metric before you look, with --metric"
    ]
