"""A comparison of runs as a self-contained HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from orbit_runner.reporting.comparison import RunComparison
from orbit_runner.reporting.html.page import page, section, table
from orbit_runner.reporting.html.svg_chart import COLORS, Series, line_chart
from orbit_runner.reporting.text.comparison import (
    Row,
    difference_rows,
    metric_rows,
    summary_rows,
)


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
