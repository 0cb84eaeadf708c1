"""Charts as SVG, without scripts: in a page, whose style sheet has their colors, or by themselves.

They are well-formed XML, which a page does not need, but a document of its own does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape

from orbit_runner.reporting.document import Chart, Series

WIDTH, HEIGHT = 480, 270
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 10, 34
# A loss whose values span this factor is drawn on a logarithmic axis.
_LOG_RATIO = 10.0
_LIGHT = ("#2563eb", "#d97706", "#059669", "#dc2626", "#7c3aed", "#0891b2", "#be185d", "#4d7c0f")
_DARK = ("#60a5fa", "#fbbf24", "#34d399", "#f87171", "#a78bfa", "#22d3ee", "#f472b6", "#a3e635")
COLORS = len(_LIGHT)  # Further series have the same colors, with dashes.
_BUCKETS = 300  # More points than this are drawn as the range of each bucket.
_MOST_DOTS = 60
_PLACE_MARGIN = 60  # beside the first and the last named place
_DASHES = ("", "6 3", "2 3", "8 3 2 3")
_COLUMNS = 2  # of charts side by side
_GAP, _PADDING, _TITLE, _LEGEND = 12, 10, 24, 22  # around and in a chart of `draw_charts`
_LETTER = 7  # the usual width of a letter


def _variables(colors: Sequence[str]) -> str:
    return "".join(f"--c{index}:{color};" for index, color in enumerate(colors))


# The variables of the style sheet, for light and dark pages.
LIGHT_COLORS = (
    "--page:#fff;--card:#f6f7f9;--ink:#1c2330;--soft:#5b6472;--line:#dfe3e8;--bad:#b91c1c;"
    f"--good:#15803d;--right:21 128 61;--wrong:220 38 38;{_variables(_LIGHT)}"
)
DARK_COLORS = (
    "--page:#12161d;--card:#1a2029;--ink:#e6e9ee;--soft:#9aa4b2;--line:#2f3845;--bad:#f87171;"
    f"--good:#4ade80;--right:74 222 128;--wrong:248 113 113;{_variables(_DARK)}"
)
# The rules for what charts consist of.
CHART_STYLE = (
    """\
svg text{font:12px system-ui,sans-serif;fill:var(--soft)}
svg .end{text-anchor:end}
svg .mid{text-anchor:middle}
svg .grid{stroke:var(--line);stroke-width:1;fill:none}
svg .axis{stroke:var(--soft);stroke-width:1;fill:none}
svg .line{fill:none;stroke:var(--c);stroke-width:1.8;stroke-linejoin:round}
svg .dot,svg rect{fill:var(--c)}
svg .mark{stroke:var(--soft);stroke-width:1;stroke-dasharray:4 3;fill:none}
svg .bad{stroke:var(--bad);stroke-width:2;fill:none}
svg .band{fill:var(--c);opacity:.18}
svg .quiet{fill:none;stroke:var(--soft);stroke-width:1;opacity:.4}
"""
    + "".join(f".c{index}{{--c:var(--c{index})}}" for index in range(COLORS))
    + "\n"
)


class Axis:
    """Maps values to coordinates, and chooses the ticks."""

    def __init__(
        self, low: float, high: float, start: float, end: float, *, log: bool = False
    ) -> None:
        self.log = log
        low, high = (math.log10(low), math.log10(high)) if log else (low, high)
        if high == low:
            margin = abs(low) * 0.05 or 0.5
            low, high = low - margin, high + margin
        self._low, self._high = low, high
        self._start, self._end = start, end

    def position(self, value: float) -> float:
        """Returns the coordinate of a value."""
        value = math.log10(value) if self.log else value
        share = (value - self._low) / (self._high - self._low)
        return self._start + share * (self._end - self._start)

    def ticks(self) -> list[float]:
        """Returns the values at which lines are drawn: about five round numbers."""
        if self.log and self._high - self._low >= 1:
            lowest, highest = math.floor(self._low), math.floor(self._high)
            # With less than three decades, 2 and 5 as well.
            factors = (1, 2, 5) if self._high - self._low < 3 else (1,)
            powers = range(lowest, highest + 1, max(1, (highest - lowest) // 5))
            candidates = [factor * 10.0**power for power in powers for factor in factors]
            return [value for value in candidates if self._low <= math.log10(value) <= self._high]
        low, high = (10**self._low, 10**self._high) if self.log else (self._low, self._high)
        rough = (high - low) / 5
        size = 10.0 ** math.floor(math.log10(rough))
        stride = next(factor * size for factor in (1, 2, 5, 10) if factor * size >= rough * 0.999)
        first = math.ceil(low / stride - 1e-9)
        count = math.floor((high - first * stride) / stride + 1e-9)
        return [round((first + index) * stride, 12) for index in range(count + 1)]


def is_logarithmic(title: str, low: float, high: float) -> bool:
    """Returns whether values between `low` and `high` are drawn on a logarithmic axis."""
    return "loss" in title and low > 0 and high / low >= _LOG_RATIO


def value_axis(title: str, values: Sequence[float]) -> Axis:
    """Returns the vertical axis of a chart of some finite values. A loss may be logarithmic."""
    low, high = min(values), max(values)
    log = is_logarithmic(title, low, high)
    if log:
        low, high = low / (high / low) ** 0.04, high * (high / low) ** 0.04
    elif high > low:
        margin = (high - low) * 0.04
        low, high = low - margin, high + margin
    return Axis(low, high, HEIGHT - BOTTOM, TOP, log=log)


def value_grid(axis: Axis) -> Iterator[str]:
    """Yields the lines and labels of the vertical axis, and the line below the chart."""
    for value in axis.ticks():
        y = axis.position(value)
        yield f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>'
        place = f'x="{LEFT - 6}" y="{y + 4:.1f}"'
        yield f'<text {place} class="end">{format_tick(value)}</text>'
    yield f'<path class="axis" d="M{LEFT} {HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>'


def step_labels(axis: Axis) -> Iterator[str]:
    """Yields the labels of the horizontal axis of a chart by step or by another integer."""
    for value in axis.ticks():
        if value == int(value):
            yield x_label(axis.position(value), format_tick(value))


def x_label(x: float, text: str) -> str:
    """Returns the label of one place of the horizontal axis, within the chart."""
    x = min(x, WIDTH - len(text) * (_LETTER + 1) / 2)
    return f'<text x="{x:.1f}" y="{HEIGHT - 18}" class="mid">{escape(text)}</text>'


def x_title(text: str) -> str:
    """Returns the title of the horizontal axis."""
    middle = (LEFT + WIDTH - RIGHT) / 2
    return f'<text x="{middle:.0f}" y="{HEIGHT - 5}" class="mid">{escape(text)}</text>'


def cross(x: float, y: float, hint: str) -> str:
    """Returns a mark for a value that is missing or not finite; `hint` says what it is."""
    path = f"M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8"
    return f'<path class="bad" d="{path}"><title>{escape(hint)}</title></path>'


def format_tick(value: float) -> str:
    """Returns a number in few characters: 0.25, 1500, 12k, 2.5M, 1.5e-4."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == 'k' else size):.4g}{unit}"
    if 0 < abs(value) < 1e-3:
        mantissa, _, exponent = f"{value:.3e}".partition("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return f"{value:.4g}"


def line_chart(chart: Chart) -> str:
    """Returns a figure with a chart and, for several series, a legend; "" if all are empty."""
    drawing = _draw(chart)
    if drawing is None:
        return ""
    title, body = drawing
    legend = "".join(
        f'<span class="key c{line.color % COLORS}">{escape(line.name)}</span>'
        for line in _legend(chart)
    )
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(chart.title)}">'
        f"{body}</svg>"
        f"{f'<div class=legend>{legend}</div>' if legend else ''}</figure>"
    )


def draw_charts(charts: Iterable[Chart]) -> str:
    """Returns an SVG document with charts side by side, without those that are empty."""
    drawings = [(chart, drawn) for chart in charts if (drawn := _draw(chart)) is not None]
    columns = max(1, min(_COLUMNS, len(drawings)))
    across = WIDTH + 2 * _PADDING
    down = HEIGHT + _TITLE + _LEGEND + 2 * _PADDING
    rows = math.ceil(len(drawings) / columns)
    width = columns * (across + _GAP) - _GAP
    height = max(0, rows * (down + _GAP) - _GAP)
    cells = []
    for number, (chart, (title, body)) in enumerate(drawings):
        row, column = divmod(number, columns)
        at = f"translate({column * (across + _GAP)},{row * (down + _GAP)})"
        cells.append(
            f'<g transform="{at}"><rect class="card" width="{across}" height="{down}" rx="8"/>'
            f'<text class="title" x="{_PADDING}" y="{_PADDING + 14}">{escape(title)}</text>'
            f'<g transform="translate({_PADDING},{_PADDING + _TITLE})">{body}'
            f"{''.join(_legend_parts(chart))}</g></g>"
        )
    style = (
        f"svg{{{LIGHT_COLORS}}}@media(prefers-color-scheme:dark){{svg{{{DARK_COLORS}}}}}"
        f"{CHART_STYLE}svg .card{{fill:var(--card)}}"
        "svg .title{font-weight:600;font-size:14px;fill:var(--ink)}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}"><style>{style}</style>{"".join(cells)}</svg>'
    )


def _draw(chart: Chart) -> tuple[str, str] | None:
    """Returns the title of a chart and its contents; None if all series are empty."""
    series = chart.series
    values = [v for line in series for v in line.points.values() if math.isfinite(v)]
    values += [
        v for line in series for ends in line.band.values() for v in ends if math.isfinite(v)
    ]
    steps = [step for line in series for step in line.points]
    if not values:
        return None
    y_axis = value_axis("loss" if chart.may_be_log else chart.title, values)
    margin = _PLACE_MARGIN if chart.places else 0
    x_axis = Axis(min(steps), max(steps), LEFT + margin, WIDTH - RIGHT - margin)
    if chart.places:
        labels = [x_label(x_axis.position(step), name) for step, name in enumerate(chart.places)]
    else:
        labels = [*step_labels(x_axis), x_title(chart.x_label)]
    parts = [*value_grid(y_axis), *labels]
    for step, meaning in chart.marks.items():
        if min(steps) <= step <= max(steps):
            parts.append(_mark(step, meaning, x_axis))
    for line in series:
        parts += _series(line, chart, x_axis, y_axis)
    return f"{chart.title}{' (log)' if y_axis.log else ''}", "".join(parts)


def _legend(chart: Chart) -> list[Series]:
    """Returns the series that the legend of a chart names; [] if it needs none."""
    named = sorted((line for line in chart.series if not line.quiet), key=lambda line: line.color)
    return named if len(chart.series) > 1 else []


def _legend_parts(chart: Chart) -> Iterator[str]:
    x = LEFT
    y = HEIGHT + 12
    for line in _legend(chart):
        yield f'<path class="line c{line.color % COLORS}" d="M{x} {y - 4}h14"/>'
        yield f'<text x="{x + 20}" y="{y}">{escape(line.name)}</text>'
        x += 34 + _LETTER * len(line.name)


def share_bar(title: str, shares: Mapping[str, float]) -> str:
    """Returns a figure with one bar, divided in proportion to the values, and a legend."""
    total = sum(shares.values()) or 1.0
    parts = []
    start = 0.0
    height = 22
    for index, (name, value) in enumerate(shares.items()):
        width = value / total * WIDTH
        parts.append(
            f'<rect class="c{index % COLORS}" x="{start:.2f}" width="{width:.2f}" '
            f'height="{height}">'
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
    x = x_axis.position(step)
    hint = escape(f"{meaning} at step {step:,}")
    return f'<path class="mark" d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}"><title>{hint}</title></path>'


def _series(line: Series, chart: Chart, x_axis: Axis, y_axis: Axis) -> Iterator[str]:
    def is_drawn(value: float) -> bool:
        return math.isfinite(value) and (not y_axis.log or value > 0)

    color = line.color % COLORS
    dash = _DASHES[line.color // COLORS % len(_DASHES)]
    points = list(_downsample_points(list(line.points.items())))
    commands = []
    pen_down = False
    for step, value in points:
        if is_drawn(value):
            x, y = x_axis.position(step), y_axis.position(value)
            commands.append(f"{'L' if pen_down else 'M'}{x:.1f} {y:.1f}")
        pen_down = is_drawn(value)
    yield from _band(line, x_axis, y_axis)
    if line.quiet:
        title = f"<title>{escape(line.name)}</title>"
        yield f'<path class="quiet" d="{"".join(commands)}">{title}</path>'
        return
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    yield f'<path class="line c{color}"{dashes} d="{"".join(commands)}"/>'
    if len(points) <= _MOST_DOTS:
        for step, value in points:
            if is_drawn(value):
                x, y = x_axis.position(step), y_axis.position(value)
                place = chart.places[step] if chart.places else f"{chart.x_label} {step:,}"
                hint = escape(f"{line.name}, {place}: {value:.5g}")
                yield f'<circle class="dot c{color}" cx="{x:.1f}" cy="{y:.1f}" r="2.5">'
                yield f"<title>{hint}</title></circle>"
    lost = [step for step, value in line.points.items() if not math.isfinite(value)]
    for step in lost[:20]:
        hint = f"{line.name}, step {step:,}: not a finite number"
        yield cross(x_axis.position(step), HEIGHT - BOTTOM - 4, hint)


def _band(line: Series, x_axis: Axis, y_axis: Axis) -> Iterator[str]:
    """Yields the area between the lowest and the highest values as a closed path."""
    ends = {
        step: pair
        for step, pair in line.band.items()
        if all(math.isfinite(end) and (not y_axis.log or end > 0) for end in pair)
    }
    if not ends:
        return
    low = [(step, pair[0]) for step, pair in ends.items()]
    high = [(step, pair[1]) for step, pair in reversed(ends.items())]
    corners = (f"{x_axis.position(x):.1f} {y_axis.position(y):.1f}" for x, y in [*low, *high])
    yield f'<path class="band c{line.color % COLORS}" d="M{"L".join(corners)}Z"/>'


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
