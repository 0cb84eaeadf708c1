"""Charts as SVG, without scripts: in a page, whose style sheet has their colors, or by themselves.

They are well-formed XML, which a page does not need, but a document of its own does.

A chart is as wide as its place. So x coordinates are shares of the width, in percent, and y
coordinates are pixels; only paths, whose coordinates cannot be shares, are stretched. Texts are
not, and so they have the same size in all charts and on all screens.
"""

from __future__ import annotations

import bisect
import html
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

from orbit_runner.reporting.document import Chart, HeatMap, Series
from orbit_runner.reporting.numbers import number_or_dash
from orbit_runner.utils.streams import visible_text

HEIGHT = 226  # of the area between the axes, in pixels
# What labels need around that area. `LEFT` is the least, for labels of five characters.
TOP, RIGHT, BOTTOM, LEFT = 8, 14, 36, 46
LETTER = 7.2  # the largest usual width of a character of a label, in pixels
# The width of that area on a phone. Labels are chosen so that they do not overlap there.
NARROW = 268
_WIDE = 420  # in an image of its own
_STRETCHED = 1000  # the width of paths before they are stretched
# A loss whose values span this factor is drawn on a logarithmic axis.
_LOG_RATIO = 10.0
# Values that differ by less than this share of themselves are equal but for rounding.
_EQUAL = 1e-6
# Larger values are not drawn, because axes would be infinitely long. Those below 1 / `LARGEST` are
# drawn as zero.
LARGEST = 1e100
_MOST_TICKS = 7
# None is red, the color of errors.
_LIGHT = ("#2563eb", "#d97706", "#059669", "#7c3aed", "#0891b2", "#c026d3", "#4d7c0f", "#78716c")
_DARK = ("#60a5fa", "#fbbf24", "#34d399", "#a78bfa", "#22d3ee", "#e879f9", "#a3e635", "#d6d3d1")
COLORS = len(_LIGHT)  # Further series have the same colors, with dashes.
_BUCKETS = 300  # More points than this are drawn as the range of each bucket.
_MOST_DOTS = 60
_MOST_HINTS = 60  # parts of a chart that show their values if the pointer is there
_PLACE_MARGIN = 16  # percent beside the first and the last named place
_DOT_MARGIN = 4  # percent beside the first and the last dot
_DASHES = ("", "6 3", "2 3", "8 3 2 3")
_HEAT_SHADES = 8
_COLUMNS = 2  # of charts side by side
_GAP, _PADDING, _TITLE, _LEGEND = 12, 10, 24, 18  # around and in a chart of `draw_charts`


def _variables(colors: Sequence[str]) -> str:
    return "".join(f"--c{index}:{color};" for index, color in enumerate(colors))


# The variables of the style sheet, for light and dark pages.
LIGHT_COLORS = (
    "--page:#fff;--card:#f6f7f9;--ink:#1c2330;--soft:#5b6472;--line:#dfe3e8;--shadow:#c3cad3;--bad:#b91c1c;"
    f"--good:#15803d;--right:21 128 61;--wrong:220 38 38;{_variables(_LIGHT)}"
)
DARK_COLORS = (
    "--page:#12161d;--card:#1a2029;--ink:#e6e9ee;--soft:#9aa4b2;--line:#2f3845;--shadow:#4a5666;--bad:#f87171;"
    f"--good:#4ade80;--right:74 222 128;--wrong:248 113 113;{_variables(_DARK)}"
)
# The rules for what charts consist of.
CHART_STYLE = (
    """\
svg text{font:12px system-ui,sans-serif;fill:var(--soft)}
svg path{vector-effect:non-scaling-stroke}
svg .end{text-anchor:end}
svg .mid{text-anchor:middle}
svg .grid{stroke:var(--line);stroke-width:1;fill:none}
svg .axis{stroke:var(--soft);stroke-width:1;fill:none}
svg .line{fill:none;stroke:var(--c);stroke-width:1.8;stroke-linejoin:round}
svg .dot,svg rect{fill:var(--c)}
svg .line,svg .dot,svg .band,svg .ring{pointer-events:none}
svg .ring{fill:none;stroke:var(--c);stroke-width:2}
svg .hint{fill:transparent}
svg .hint:hover{fill:var(--soft);fill-opacity:.15}
svg .mark{stroke:var(--soft);stroke-width:1;stroke-dasharray:4 3;fill:none}
svg .bad{stroke:var(--bad);stroke-width:2;fill:none}
svg .band{fill:var(--c);opacity:.18}
svg .quiet{fill:none;stroke:var(--soft);stroke-width:1;opacity:.4}
svg circle.quiet{opacity:.7}
"""
    + "".join(f".c{index}{{--c:var(--c{index})}}" for index in range(COLORS))
    + "\n"
)


def escape(text: str) -> str:
    """Returns a text as HTML and XML, which have no control characters."""
    return html.escape(visible_text(text))


def cut_middle(text: str, most: int) -> str:
    """Returns a text of at most `most` characters; the middle of a longer one is left out."""
    if len(text) <= most:
        return text
    head = most // 2
    return f"{text[:head]}…{text[len(text) - (most - head - 1) :]}"


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

    def ticks(self, room: float = math.inf) -> list[tuple[float, str]]:
        """Returns the coordinates and labels of round numbers, at most seven on a linear axis.

        `room` is the width in pixels for labels side by side.
        """
        candidates = self._powers() if self.log and self._high - self._low >= 1 else self._rounded()
        for values in candidates:
            labels = tick_labels(values, self.log)
            if len(values) * (max(map(len, labels), default=0) + 1) * LETTER <= room:
                return [(self.position(v), label) for v, label in zip(values, labels, strict=True)]
        return []

    def _powers(self) -> Iterator[list[float]]:
        lowest, highest = math.floor(self._low), math.floor(self._high)
        powers = range(lowest, highest + 1, max(1, (highest - lowest) // 5))
        # With less than three decades, 2 and 5 as well.
        for factors in [(1, 2, 5), (1,)] if self._high - self._low < 3 else [(1,)]:
            values = [factor * 10.0**power for power in powers for factor in factors]
            yield [value for value in values if self._low <= math.log10(value) <= self._high]

    def _rounded(self) -> Iterator[list[float]]:
        low, high = (10**self._low, 10**self._high) if self.log else (self._low, self._high)
        size = 10.0 ** math.floor(math.log10((high - low) / _MOST_TICKS))
        for stride in [factor * size for factor in (1, 2, 2.5, 5, 10, 20, 25, 50, 100)]:
            first = math.ceil(low / stride - 1e-9)
            count = math.floor((high - first * stride) / stride + 1e-9) + 1
            if count <= _MOST_TICKS:
                places = max(0, 1 - math.floor(math.log10(stride)))
                yield [round((first + index) * stride, places) for index in range(count)]


def value_axis(title: str, values: Sequence[float], height: float = HEIGHT) -> Axis:
    """Returns the vertical axis of a chart of some finite values. A loss may be logarithmic."""
    low, high = min(values), max(values)
    largest = max(abs(low), abs(high))
    if largest < 1 / LARGEST:
        low, high = 0.0, 1.0
    elif high - low <= _EQUAL * largest:  # The axis of equal values begins at 0.
        low, high = min(0.0, low), max(0.0, high)
    log = "loss" in title and low >= 1 / LARGEST and high / low >= _LOG_RATIO
    if log:
        low, high = low / (high / low) ** 0.04, high * (high / low) ** 0.04
    else:
        margin = (high - low) * 0.04
        low, high = low - margin, high + margin
    return Axis(low, high, height, 0, log=log)


def _value_grid(axis: Axis) -> Iterator[str]:
    """Yields the lines and labels of the vertical axis, and the line below the chart."""
    for y, label in axis.ticks():
        yield _horizontal(y, "grid")
        yield f'<text x="-6" y="{y + 4:.1f}" class="end">{label}</text>'
    yield _horizontal(HEIGHT, "axis")


def _horizontal(y: float, kind: str) -> str:
    return f'<line class="{kind}" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>'


def _number_labels(axis: Axis, steps: Sequence[float]) -> Iterator[str]:
    """Yields the labels of the horizontal axis; whole numbers if all steps are."""
    are_whole = all(step == int(step) for step in steps)
    for x, label in axis.ticks(NARROW):
        if not are_whole or "." not in label or label[-1] in "kMG":
            yield _x_label(x, label)


def _x_label(x: float, text: str) -> str:
    """Returns the label of one place of the horizontal axis, within the chart."""
    fits = len(text) * LETTER / 2 <= (100 - x) / 100 * NARROW + RIGHT
    place = f'x="{x:.4g}%" class="mid"' if fits else f'x="100%" dx="{RIGHT}" class="end"'
    return f'<text {place} y="{HEIGHT + 16}">{escape(text)}</text>'


def _cross(x: float, y: float, hint: str) -> str:
    """Returns a mark for a value that is missing or not finite; `hint` says what it is."""
    return (
        f'<svg x="{x:.4g}%" y="{y:.1f}" overflow="visible">'
        f'<path class="bad" d="M-4 -4l8 8m0 -8l-8 8"><title>{escape(hint)}</title></path></svg>'
    )


def stretched(paths: Iterable[str], height: float = HEIGHT) -> str:
    """Returns paths whose x coordinates are those of `stretched_x`."""
    return (
        f'<svg width="100%" height="{height}" viewBox="0 0 {_STRETCHED} {height}" '
        f'preserveAspectRatio="none" overflow="visible">{"".join(paths)}</svg>'
    )


def stretched_x(x: float) -> float:
    """Returns the x coordinate of a stretched path at a share of the width in percent."""
    return x * _STRETCHED / 100


def format_tick(value: float) -> str:
    """Returns a number in few characters: 0.25, 1500, 12k, 2.5M, 1.5e-4."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == 'k' else size):.4g}{unit}"
    if 0 < abs(value) < 1e-3:
        mantissa, _, exponent = f"{value:.3e}".partition("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return f"{value:.4g}"


def tick_labels(values: Sequence[float], log: bool = False) -> list[str]:
    """Returns the labels of an axis: whole numbers, in one unit if the axis is linear."""
    largest = max(map(abs, values), default=0.0)
    if log or not largest:
        return [format_tick(value) for value in values]
    scales = ((1e9, "G"), (1e6, "M"), (1e4, "k"))
    unit = next((unit for size, unit in scales if largest >= size), "")
    size = {"G": 1e9, "M": 1e6, "k": 1e3}.get(unit, 1.0)
    if largest < 1e-3:
        exponent = math.floor(math.log10(largest))
        unit, size = f"e{exponent}", 10.0**exponent
    return [f"{value / size:.10g}{unit}" if value else "0" for value in values]


def line_chart(chart: Chart) -> str:
    """Returns a figure with a chart and, for several series, a legend; "" if all are empty."""
    drawing = _draw(chart)
    if drawing is None:
        return ""
    title, body, left = drawing
    keys = "".join(_key(line, chart) for line in _legend(chart))
    legend = f"<div class=legend>{keys}</div>" if keys else ""
    room = f' style="padding-left:{left:.0f}px"' if left > LEFT else ""
    return (
        f"<figure><figcaption>{escape(title)}</figcaption><div class=plot{room}>"
        f'<svg height="{HEIGHT}" role="img" aria-label="{escape(chart.title)}">{body}</svg></div>'
        f"{legend}</figure>"
    )


def _key(line: Series, chart: Chart) -> str:
    dash = _dash_index(line)
    kind = f"key c{line.color % COLORS}{f' d{dash}' if dash else ''}"
    best = f"<span class=ring>{escape(text)}</span>" if (text := best_text(line, chart)) else ""
    return f'<span class="{kind}">{escape(line.name)}{best}</span>'


def heat_map(part: HeatMap) -> str:
    """Returns a figure with a path for each color and shade of the cells."""
    squares = dict[tuple[bool, int], list[str]]()
    for row, column, share, is_right in part.cells:
        square = f"M{column} {row}h1v1h-1z"
        squares.setdefault((is_right, math.ceil(_HEAT_SHADES * share)), []).append(square)
    paths = "".join(
        f'<path class="cell{"" if is_right else " wrong"}" '
        f'fill-opacity="{shade / _HEAT_SHADES:.3g}" d="{"".join(places)}"/>'
        for (is_right, shade), places in sorted(squares.items())
    )
    size = part.size
    return (
        f"<figure class=heat><figcaption>{escape(part.title)}</figcaption>"
        f'<svg viewBox="0 0 {size} {size}" role="img" aria-label="{escape(part.title)}">'
        f'<path class=frame d="M0 0h{size}v{size}h-{size}z"/>{paths}</svg></figure>'
    )


def best_text(line: Series, chart: Chart) -> str:
    """Returns the best value of a line and its step; "" if it is not marked."""
    if chart.places or line.best is None or line.best not in line.points:
        return ""
    value = number_or_dash(line.points[line.best])
    return f"best {value} at {chart.x_label} {number_or_dash(line.best)}"


def _dash_index(line: Series) -> int:
    return line.color // COLORS % len(_DASHES)


def draw_charts(charts: Iterable[Chart]) -> str:
    """Returns an SVG document with charts side by side, without those that are empty."""
    drawings = [(chart, drawing) for chart in charts if (drawing := _draw(chart)) is not None]
    columns = max(1, min(_COLUMNS, len(drawings)))
    left = max((left for _, (_, _, left) in drawings), default=LEFT)
    across = left + _WIDE + RIGHT + 2 * _PADDING
    width = columns * (across + _GAP) - _GAP
    cells = []
    y = 0.0
    for first in range(0, len(drawings), columns):
        row = drawings[first : first + columns]
        legends = [_legend_rows(chart, left + _WIDE) for chart, _ in row]
        down = _TITLE + TOP + HEIGHT + BOTTOM + 2 * _PADDING + _LEGEND * max(map(len, legends))
        for column, ((_, (title, body, _)), legend) in enumerate(zip(row, legends, strict=True)):
            cells.append(
                f'<g transform="translate({column * (across + _GAP):g},{y:g})">'
                f'<rect class="card" width="{across:g}" height="{down}" rx="8"/>'
                f'<text class="title" x="{_PADDING}" y="{_PADDING + 14}">{escape(title)}</text>'
                f'<svg x="{left + _PADDING:g}" y="{_PADDING + _TITLE + TOP}" width="{_WIDE}" '
                f'height="{HEIGHT}" overflow="visible">{body}'
                f"{''.join(_legend_parts(legend, left))}</svg></g>"
            )
        y += down + _GAP
    height = max(0.0, y - _GAP)
    style = (
        f"svg{{{LIGHT_COLORS}}}@media(prefers-color-scheme:dark){{svg{{{DARK_COLORS}}}}}"
        f"{CHART_STYLE}svg .card{{fill:var(--card)}}"
        "svg .title{font-weight:600;font-size:14px;fill:var(--ink)}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}"><style>{style}</style>{"".join(cells)}</svg>'
    )


def _draw(chart: Chart) -> tuple[str, str, float] | None:
    """Returns the title of a chart, its contents and the width of its labels; None if empty."""
    series = chart.series
    values = [v for line in series for v in line.points.values() if abs(v) <= LARGEST]
    values += [
        v for line in series for ends in line.band.values() for v in ends if abs(v) <= LARGEST
    ]
    steps = sorted({step for line in series for step in line.points})
    if not values:
        return None
    y_axis = value_axis(chart.title, values)
    has_dots = any(map(_is_dot, series))
    margin = _PLACE_MARGIN if chart.places else _DOT_MARGIN if has_dots else 0
    low, high = steps[0], steps[-1]
    if chart.places:
        low, high = min(0, low), max(len(chart.places) - 1, high)  # Dots may be beside a place.
    x_axis = Axis(low, high, margin, 100 - margin, log=chart.is_x_log)
    if chart.places:
        room = (x_axis.position(1) - x_axis.position(0)) / 100 * NARROW
        stride = math.ceil(max(1, *map(len, chart.places)) * LETTER / room)
        labels = [
            _x_label(x_axis.position(step), chart.places[step])
            for step in range(0, len(chart.places), stride)
        ]
    else:
        labels = [
            *_number_labels(x_axis, steps),
            f'<text x="50%" y="{HEIGHT + 32}" class="mid">{escape(chart.x_label)}</text>',
        ]
    parts = [*_value_grid(y_axis), *labels, *_hints(chart, x_axis, steps)]
    for step, meaning in chart.marks.items():
        if steps[0] <= step <= steps[-1]:
            parts.append(_mark(step, meaning, x_axis))
    parts.append(stretched(path for line in series for path in _paths(line, x_axis, y_axis)))
    for line in series:
        parts += _points(line, x_axis, y_axis)
    widest = max((len(label) for _, label in y_axis.ticks()), default=0)
    title = f"{chart.title} (log)" if y_axis.log else chart.title
    return title, "".join(parts), max(LEFT, 10 + LETTER * widest)


def _legend(chart: Chart) -> list[Series]:
    """Returns the series that the legend of a chart names; [] if it needs none."""
    named = sorted((line for line in chart.series if not line.quiet), key=lambda line: line.color)
    is_marked = any(best_text(line, chart) for line in named)
    return named if len(chart.series) > 1 or is_marked else []


def _legend_rows(chart: Chart, width: float) -> list[list[tuple[Series, str]]]:
    """Returns the series of the legend with their texts, in rows that are not too wide."""
    rows: list[list[tuple[Series, str]]] = []
    used = math.inf
    for line in _legend(chart):
        text = ", ".join(filter(None, [line.name, best_text(line, chart)]))
        if used + _key_width(text) > width:
            rows.append([])
            used = 0.0
        rows[-1].append((line, text))
        used += _key_width(text)
    return rows


def _key_width(text: str) -> float:
    return 34 + LETTER * len(text)


def _legend_parts(rows: Sequence[Sequence[tuple[Series, str]]], left: float) -> Iterator[str]:
    for number, row in enumerate(rows):
        x = -left
        y = HEIGHT + BOTTOM + 14 + _LEGEND * number
        for line, text in row:
            dashes = _dashes(line)
            yield f'<path class="line c{line.color % COLORS}"{dashes} d="M{x:g} {y - 4}h14"/>'
            yield f'<text x="{x + 20:g}" y="{y}">{escape(text)}</text>'
            x += _key_width(text)


def _mark(step: int, meaning: str, x_axis: Axis) -> str:
    x = x_axis.position(step)
    return (
        f'<line class="mark" x1="{x:.4g}%" x2="{x:.4g}%" y2="{HEIGHT}">'
        f"<title>{escape(_mark_text(step, meaning))}</title></line>"
    )


def _mark_text(step: int, meaning: str) -> str:
    return f"{meaning} at step {step:,}"


def _hints(chart: Chart, x_axis: Axis, steps: Sequence[int]) -> Iterator[str]:
    """Yields areas from top to bottom that show the values near the pointer, as a title."""
    parts = _split_steps(steps)
    centers = [x_axis.position((part[0] + part[-1]) / 2) for part in parts]
    ends = [0.0, *((a + b) / 2 for a, b in itertools.pairwise(centers)), 100.0]
    for number, part in enumerate(parts):
        lines = [*_hint_lines(chart, part)]
        if lines:
            left, right = ends[number : number + 2]
            yield (
                f'<rect class="hint" x="{left:.4g}%" width="{right - left:.4g}%" '
                f'height="{HEIGHT}"><title>{escape(chr(10).join(lines))}</title></rect>'
            )


def _split_steps(steps: Sequence[int]) -> list[Sequence[int]]:
    """Returns each step, or parts of equal length of the range of many steps."""
    if len(steps) <= _MOST_HINTS:
        return [[step] for step in steps]
    width = (steps[-1] - steps[0]) / _MOST_HINTS
    ends = [
        bisect.bisect_left(steps, steps[0] + width * number) for number in range(1, _MOST_HINTS)
    ]
    pairs = zip([0, *ends], [*ends, len(steps)], strict=True)
    return [steps[first:end] for first, end in pairs if first < end]


def _hint_lines(chart: Chart, steps: Sequence[int]) -> Iterator[str]:
    """Yields where a part of a chart is, and the last value of each line in it."""
    values = []
    for line in sorted(chart.series, key=lambda line: line.color):
        step = next((step for step in reversed(steps) if step in line.points), None)
        if step is not None and not line.quiet:
            at = f" at {step:,}" if len(steps) > 1 else ""
            values.append(f"{line.name}: {line.points[step]:.5g}{at}")
    if values:
        ends = " to ".join(map(number_or_dash, dict.fromkeys((steps[0], steps[-1]))))
        yield chart.places[round(steps[0])] if chart.places else f"{chart.x_label} {ends}"
        yield from values
        for step, meaning in chart.marks.items():
            if steps[0] <= step <= steps[-1]:
                yield _mark_text(step, meaning)


def _is_dot(line: Series) -> bool:
    return line.quiet and len(line.points) == 1


def _is_drawn(value: float, y_axis: Axis) -> bool:
    return abs(value) <= LARGEST and (not y_axis.log or value > 0)


def _paths(line: Series, x_axis: Axis, y_axis: Axis) -> Iterator[str]:
    """Yields the area and the line of a series, which are stretched."""
    commands = []
    pen_down = False
    for step, value in _downsample_points(list(line.points.items())):
        if is_drawn := _is_drawn(value, y_axis):
            x, y = stretched_x(x_axis.position(step)), y_axis.position(value)
            commands.append(f"{'L' if pen_down else 'M'}{x:.1f} {y:.1f}")
        pen_down = is_drawn
    yield from _band(line, x_axis, y_axis)
    path = "".join(commands)
    if _is_dot(line):
        return  # A line of one value has no length.
    if line.quiet:
        yield f'<path class="quiet" d="{path}"><title>{escape(line.name)}</title></path>'
    else:
        yield f'<path class="line c{line.color % COLORS}"{_dashes(line)} d="{path}"/>'


def _dashes(line: Series) -> str:
    dash = _DASHES[_dash_index(line)]
    return f' stroke-dasharray="{dash}"' if dash else ""


def _points(line: Series, x_axis: Axis, y_axis: Axis) -> Iterator[str]:
    """Yields a dot for each of few values, a ring at the best one and crosses without a value."""
    places = {
        step: (x_axis.position(step), y_axis.position(value))
        for step, value in line.points.items()
        if _is_drawn(value, y_axis)
    }
    bad_steps = [step for step, value in line.points.items() if not abs(value) <= LARGEST]
    for step in bad_steps[:20] if _is_dot(line) or not line.quiet else []:
        what = "too large" if math.isfinite(line.points[step]) else "not a finite number"
        hint = line.name if line.quiet else f"{line.name}, step {step:,}: {what}"
        yield _cross(x_axis.position(step), HEIGHT - 4, hint)
    if line.quiet:
        for x, y in places.values() if _is_dot(line) else ():
            yield f'<circle class="quiet" cx="{x:.4g}%" cy="{y:.1f}" r="2.5">'
            yield f"<title>{escape(line.name)}</title></circle>"
        return
    color = f"c{line.color % COLORS}"
    if len(line.points) <= _MOST_DOTS:
        dots = "".join(f'<circle cx="{x:.4g}%" cy="{y:.1f}" r="2.5"/>' for x, y in places.values())
        yield f'<g class="dot {color}">{dots}</g>'
    if line.best in places:
        x, y = places[line.best]
        yield f'<circle class="ring {color}" cx="{x:.4g}%" cy="{y:.1f}" r="5.5"/>'


def _band(line: Series, x_axis: Axis, y_axis: Axis) -> Iterator[str]:
    """Yields the area between the lowest and the highest values as a closed path."""
    ends = {
        step: pair
        for step, pair in line.band.items()
        if all(_is_drawn(end, y_axis) for end in pair)
    }
    if not ends:
        return
    low = [(step, pair[0]) for step, pair in ends.items()]
    high = [(step, pair[1]) for step, pair in reversed(ends.items())]
    corners = (
        f"{stretched_x(x_axis.position(x)):.1f} {y_axis.position(y):.1f}" for x, y in [*low, *high]
    )
    color = f"c{line.color % COLORS}"
    # An area without width is drawn as a line.
    kind = f"band {color}" if len(ends) > 1 else "quiet" if line.quiet else f"line {color}"
    yield f'<path class="{kind}" d="M{"L".join(corners)}Z"/>'


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
