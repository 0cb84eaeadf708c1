"""Comparisons of runs, and of groups of runs paired by seed, as self-contained HTML pages."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from orbit_runner.compare.paired import PairedComparison, PairedMetric
from orbit_runner.compare.runs import RunComparison
from orbit_runner.compare.statistics import (
    difference_text,
    estimate_text,
    interval_text,
    p_text,
    permutation_text,
    verdict,
)
from orbit_runner.reporting.html.page import page, section, table
from orbit_runner.reporting.html.svg_axes import LEFT, RIGHT, WIDTH, value_axis, value_grid, x_label
from orbit_runner.reporting.html.svg_chart import COLORS, Series, line_chart
from orbit_runner.reporting.text.comparison import (
    METHODS,
    Row,
    difference_rows,
    many_metrics,
    metric_rows,
    summary_rows,
)

_HEIGHT = 270  # of the charts of seeds


def comparison_page(comparison: RunComparison, curves: Sequence[tuple[str, str]]) -> str:
    """Returns the HTML page of a comparison, with charts of the given curves."""
    head = ["", *comparison.names]
    colors = {name: index for index, name in enumerate(comparison.names)}
    steps = zip(comparison.names, comparison.common_steps(), strict=True)
    marks = {step: f"{name} branches off" for name, step in steps if step is not None}
    charts = [
        line_chart(
            comparison.title(key),
            [Series(run, points, colors[run]) for run, points in comparison.own_curve(key).items()],
            marks=marks,
        )
        for key in curves
    ]
    drawn = "".join(filter(None, charts))
    title = f"Comparison of {len(comparison.runs)} runs"
    sections = {
        "Settings that differ": table(head, _texts(difference_rows(comparison.settings()))),
        "Curves": f"<div class=charts>{drawn}</div>" if drawn else "",
        "Metrics of the last evaluation and the last training record": table(
            head, _texts(metric_rows(comparison.metrics())), numbers=True
        ),
        "Metrics of the best evaluation": table(
            head, _texts(metric_rows(comparison.best())), numbers=True
        ),
        "Software that differs": table(head, _texts(difference_rows(comparison.software()))),
    }
    body = [
        f"<h1>{title}</h1>",
        _legend(comparison),
        table(head, _texts(summary_rows(comparison))),
        *(section(name, content) for name, content in sections.items()),
    ]
    return page(title, "\n".join(filter(None, body)))


def _legend(comparison: RunComparison) -> str:
    keys = (
        f'<span class="key c{index % COLORS}">{escape(str(run.summary.path))}</span>'
        for index, run in enumerate(comparison.runs)
    )
    return f"<p class=legend>{''.join(keys)}</p>"


def _texts(rows: Sequence[Row]) -> list[list[str]]:
    return [[name, *values] for name, values in rows]


def paired_page(comparisons: Sequence[PairedComparison]) -> str:
    """Returns the HTML page of one or several comparisons with the same first group."""
    title = "Is the difference chance?"
    body = [f"<h1>{title}</h1>", *map(_paired_section, comparisons)]
    methods = "".join(f"<li>{escape(text)}</li>" for text in METHODS)
    return page(title, "\n".join([*body, section("Methods", f"<ul>{methods}</ul>")]))


def _paired_section(comparison: PairedComparison) -> str:
    names = (comparison.first.name, comparison.second.name)
    notes = [*comparison.notes(), *many_metrics(comparison)]
    items = "".join(f"<li>{escape(text)}</li>" for text in notes)
    sentences = "".join(
        f'<p class="{"good" if metric.test.is_significant else "soft"}"><b>{escape(metric.name)}'
        f"</b> {escape(verdict(metric.test))}</p>"
        for metric in comparison.metrics
    )
    charts = "".join(_paired_chart(metric, comparison) for metric in comparison.metrics)
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
            [_paired_row(metric) for metric in comparison.metrics],
        ),
        f"<ul class=soft>{items}</ul>" if items else "",
    ]
    return section(f"{names[1]} against {names[0]}", "".join(content))


def _paired_row(metric: PairedMetric) -> list[str]:
    test = metric.test
    estimates = [
        f"{estimate_text(found)} {interval_text(found)}".rstrip() for found in metric.estimates
    ]
    effect = "-" if test.effect_size is None else f"{test.effect_size:.2g}"
    permuted = permutation_text(test).removeprefix("permutation test ") or "-"
    difference = difference_text(test.difference)
    return [metric.name, *estimates, difference, p_text(test.p), permuted, effect]


def _paired_chart(metric: PairedMetric, comparison: PairedComparison) -> str:
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
