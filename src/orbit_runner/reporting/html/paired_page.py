"""A paired comparison as a self-contained HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from orbit_runner.reporting.html.page import page, section, table
from orbit_runner.reporting.html.svg_axes import LEFT, RIGHT, WIDTH, value_axis, value_grid, x_label
from orbit_runner.reporting.paired import PairedComparison, PairedMetric
from orbit_runner.reporting.statistics import (
    difference_text,
    estimate_text,
    interval_text,
    p_text,
    permutation_text,
    verdict,
)
from orbit_runner.reporting.text.comparison import difference_rows
from orbit_runner.reporting.text.paired import METHODS, many_metrics

_HEIGHT = 270


def paired_page(comparisons: Sequence[PairedComparison]) -> str:
    """Returns the HTML page of one or several comparisons with the same first group."""
    title = "Is the difference chance?"
    body = [f"<h1>{title}</h1>", *map(_comparison, comparisons)]
    methods = "".join(f"<li>{escape(text)}</li>" for text in METHODS)
    return page(title, "\n".join([*body, section("Methods", f"<ul>{methods}</ul>")]))


def _comparison(comparison: PairedComparison) -> str:
    names = (comparison.first.name, comparison.second.name)
    notes = [*comparison.notes(), *many_metrics(comparison)]
    items = "".join(f"<li>{escape(text)}</li>" for text in notes)
    sentences = "".join(
        f'<p class="{"good" if metric.test.is_significant else "soft"}"><b>{escape(metric.name)}'
        f"</b> {escape(verdict(metric.test))}</p>"
        for metric in comparison.metrics
    )
    charts = "".join(_chart(metric, comparison) for metric in comparison.metrics)
    settings = {**comparison.settings(), **comparison.software()}
    seeds = ", ".join(map(str, comparison.seeds))
    content = [
        f'<p class=legend><span class="key c0">A: {escape(names[0])}</span>'
        f'<span class="key c1">B: {escape(names[1])}</span></p>',
        f"<p class=soft>{len(comparison.seeds)} seeds: {escape(seeds)}</p>",
        sentences,
        table(("", "A", "B"), [[path, *row] for path, row in difference_rows(settings)]),
        f"<div class=charts>{charts}</div>",
        table(
            ("metric", "A", "B", "B - A", "t-test", "permutation test", "effect size"),
            [_row(metric) for metric in comparison.metrics],
        ),
        f"<ul class=soft>{items}</ul>" if items else "",
    ]
    return section(f"{names[1]} against {names[0]}", "".join(content))


def _row(metric: PairedMetric) -> list[str]:
    test = metric.test
    estimates = [
        f"{estimate_text(found)} {interval_text(found)}".rstrip() for found in metric.estimates
    ]
    effect = "-" if test.effect_size is None else f"{test.effect_size:.2g}"
    permuted = permutation_text(test).removeprefix("permutation test ") or "-"
    difference = difference_text(test.difference)
    return [metric.name, *estimates, difference, p_text(test.p), permuted, effect]


def _chart(metric: PairedMetric, comparison: PairedComparison) -> str:
    """Returns a chart with a line from A to B for each seed, and the means as points."""
    axis = value_axis(metric.name, [*metric.first, *metric.second])
    left, right = LEFT + 60, WIDTH - RIGHT - 60
    parts = [*value_grid(axis), x_label(left, "A"), x_label(right, "B")]
    for seed, before, after in zip(comparison.seeds, metric.first, metric.second, strict=True):
        hint = escape(f"seed {seed}: {before:.5g}, {after:.5g}")
        ends = f"M{left} {axis.position(before):.1f}L{right} {axis.position(after):.1f}"
        parts.append(f'<path class=quiet d="{ends}"><title>{hint}</title></path>')
    for x, found, color in zip((left, right), metric.estimates, (0, 1), strict=True):
        y = axis.position(found.mean)
        hint = escape(estimate_text(found))
        parts.append(f'<circle class="dot c{color}" cx={x} cy={y:.1f} r=5>')
        parts.append(f"<title>{hint}</title></circle>")
    title = f"{metric.name.replace('_', ' ')}{' (log)' if axis.log else ''}"
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)} by seed">'
        f"{''.join(parts)}</svg></figure>"
    )
