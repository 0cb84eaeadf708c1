"""Line charts as inline SVG, without scripts. Colors come from the style sheet of the page."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape

from orbit_runner.reporting.html.svg_axes import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Axis,
    cross,
    step_labels,
    value_axis,
    value_grid,
    x_title,
)

COLORS = 8  # Further series have the same colors, with dashes.

_BUCKETS = 300  # More points than this are drawn as the range of each bucket.
_MOST_DOTS = 60
_DASHES = ("", "6 3", "2 3", "8 3 2 3")


@dataclasses.dataclass(frozen=True)
class Series:
    """A line of a chart.

    Attributes:
        name: The name in the legend.
        points: Values by step, in ascending order of steps; NaN where there is no number.
        color: The index of the color.
        band: The lowest and highest value by step, drawn as an area behind the line.
        quiet: Whether the line is thin and gray, without dots and without a legend.
    """

    name: str
    points: Mapping[int, float]
    color: int = 0
    band: Mapping[int, tuple[float, float]] = dataclasses.field(default_factory=dict)
    quiet: bool = False


def line_chart(
    title: str,
    series: Sequence[Series],
    *,
    x_label: str = "step",
    may_be_log: bool = False,
    marks: Mapping[int, str] | None = None,
) -> str:
    """Returns a figure with a chart and, for several series, a legend; "" if all are empty.

    The values of a loss, or if `may_be_log`, have a logarithmic axis if they span a wide range.
    `marks` are steps at which a vertical line is drawn, with their meaning.
    """
    values = [v for one in series for v in one.points.values() if math.isfinite(v)]
    values += [v for one in series for ends in one.band.values() for v in ends if math.isfinite(v)]
    steps = [step for one in series for step in one.points]
    if not values:
        return ""
    y_axis = value_axis("loss" if may_be_log else title, values)
    x_axis = Axis(min(steps), max(steps), LEFT, WIDTH - RIGHT)
    parts = [*value_grid(y_axis), *step_labels(x_axis), x_title(x_label)]
    for step, meaning in (marks or {}).items():
        if min(steps) <= step <= max(steps):
            parts.append(_mark(step, meaning, x_axis))
    for one in series:
        parts += _series(one, x_axis, y_axis)
    named = sorted((one for one in series if not one.quiet), key=lambda one: one.color)
    legend = "".join(
        f'<span class="key c{one.color % COLORS}">{escape(one.name)}</span>' for one in named
    )
    return (
        f"<figure><figcaption>{escape(title)}{' (log)' if y_axis.log else ''}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
        f"{''.join(parts)}</svg>"
        f"{f'<div class=legend>{legend}</div>' if len(series) > 1 and named else ''}</figure>"
    )


def share_bar(title: str, shares: Mapping[str, float]) -> str:
    """Returns a figure with one bar, divided in proportion to the values, and a legend."""
    total = sum(shares.values()) or 1.0
    parts, start, height = [], 0.0, 22
    for index, (name, value) in enumerate(shares.items()):
        width = value / total * WIDTH
        parts.append(
            f'<rect class="c{index % COLORS}" x={start:.2f} width={width:.2f} height={height}>'
            f"<title>{escape(name)}: {value / total:.1%}</title></rect>"
        )
        start += width
    legend = "".join(
        f'<span class="key c{index % COLORS}">{escape(name)}</span>'
        for index, name in enumerate(shares)
    )
    return (
        f'<figure><svg viewBox="0 0 {WIDTH} {height}" preserveAspectRatio="none" class=bar '
        f'role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>'
        f"<div class=legend>{legend}</div></figure>"
    )


def _mark(step: int, meaning: str, x_axis: Axis) -> str:
    x, hint = x_axis.position(step), escape(f"{meaning} at step {step:,}")
    return f'<path class=mark d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}"><title>{hint}</title></path>'


def _series(one: Series, x_axis: Axis, y_axis: Axis) -> Iterator[str]:
    def is_drawn(value: float) -> bool:
        return math.isfinite(value) and (not y_axis.log or value > 0)

    color, dash = one.color % COLORS, _DASHES[one.color // COLORS % len(_DASHES)]
    points = list(_downsample_points(list(one.points.items())))
    commands, pen_down = [], False
    for step, value in points:
        if is_drawn(value):
            x, y = x_axis.position(step), y_axis.position(value)
            commands.append(f"{'L' if pen_down else 'M'}{x:.1f} {y:.1f}")
        pen_down = is_drawn(value)
    yield from _band(one, x_axis, y_axis)
    if one.quiet:
        yield f'<path class=quiet d="{"".join(commands)}"><title>{escape(one.name)}</title></path>'
        return
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    yield f'<path class="line c{color}"{dashes} d="{"".join(commands)}"/>'
    if len(points) <= _MOST_DOTS:
        for step, value in points:
            if is_drawn(value):
                x, y = x_axis.position(step), y_axis.position(value)
                hint = escape(f"{one.name}, step {step:,}: {value:.5g}")
                yield f'<circle class="dot c{color}" cx={x:.1f} cy={y:.1f} r=2.5>'
                yield f"<title>{hint}</title></circle>"
    lost = [step for step, value in one.points.items() if not math.isfinite(value)]
    for step in lost[:20]:
        hint = f"{one.name}, step {step:,}: not a finite number"
        yield cross(x_axis.position(step), HEIGHT - BOTTOM - 4, hint)


def _band(one: Series, x_axis: Axis, y_axis: Axis) -> Iterator[str]:
    """Yields the area between the lowest and the highest values as a closed path."""
    ends = {
        step: pair
        for step, pair in one.band.items()
        if all(math.isfinite(end) and (not y_axis.log or end > 0) for end in pair)
    }
    if not ends:
        return
    low = [(step, pair[0]) for step, pair in ends.items()]
    high = [(step, pair[1]) for step, pair in reversed(ends.items())]
    corners = (f"{x_axis.position(x):.1f} {y_axis.position(y):.1f}" for x, y in [*low, *high])
    yield f'<path class="band c{one.color % COLORS}" d="M{"L".join(corners)}Z"/>'


def _downsample_points(points: list[tuple[int, float]]) -> Iterator[tuple[int, float]]:
    """Yields at most two points per bucket: its smallest and largest value, in order."""
    if len(points) <= 2 * _BUCKETS:
        yield from points
        return
    size = len(points) / _BUCKETS
    for bucket in range(_BUCKETS):
        inside = points[int(bucket * size) : int((bucket + 1) * size)]
        finite = [point for point in inside if math.isfinite(point[1])] or inside[:1]
        ends = {min(finite, key=lambda point: point[1]), max(finite, key=lambda point: point[1])}
        yield from sorted(ends)
    yield points[-1]
