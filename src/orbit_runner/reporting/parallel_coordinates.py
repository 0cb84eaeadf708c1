"""Parallel coordinates as SVG: an axis for each value, and a line through the values of each thing.

Lines are darker (in dark mode: lighter) the better their results are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from orbit_runner.reporting.document import SHADES, Parallel, ParallelAxis
from orbit_runner.reporting.svg import (
    LARGEST,
    LETTER,
    Axis,
    cut_middle,
    escape,
    stretched,
    stretched_x,
    value_axis,
)

_SPACE = 150  # between two axes, at least
_TOP, _BOTTOM = 26, 290
_HEIGHT = 300  # without the place of lines that lack a result
_LEFT, _RIGHT = 86, 76
_NONE = 312  # Where lines go that lack a result.
_MOST_LABEL = 11  # characters
_MOST_NAME = 21  # characters: `validation_loss (log)` fits
_MANY = 60  # Lines are fainter if there are more.
_MOST_PLACES = 16
# From the best to the worst results: strong to faint on each background.
_LIGHT = ("#1e3a8a", "#2f55b0", "#5b7fcb", "#8ba7de", "#b3c5e8", "#cfd9ea")
_DARK = ("#cfe0ff", "#9dbcf5", "#7195d8", "#5473ae", "#415680", "#36445f")


def _variables(colors: Sequence[str]) -> str:
    return "".join(f"--q{index}:{color};" for index, color in enumerate(colors))


_SHADE_RULES = "".join(
    f".q{shade}{{--q:var(--q{shade})}}.key-q{shade}{{--c:var(--q{shade})}}"
    for shade in range(SHADES)
)
# The rules for what the chart consists of.
PARALLEL_STYLE = f"""\
:root{{{_variables(_LIGHT)}--best:var(--c1)}}
@media (prefers-color-scheme:dark){{:root{{{_variables(_DARK)}}}}}
svg .back{{fill:var(--card)}}
svg .name{{font-weight:600;fill:var(--ink)}}
svg .strand{{fill:none;stroke:var(--q);stroke-width:1.4;opacity:.8}}
.many .strand{{stroke-width:1.1;opacity:.5}}
svg .strand:hover{{stroke-width:3.5;opacity:1}}
svg .strand.best{{stroke:var(--best);stroke-width:3;opacity:1}}
svg .strand.lost{{stroke:var(--bad);stroke-width:1;stroke-dasharray:4 3;opacity:.7}}
.key-best{{--c:var(--best)}}
.key-lost{{--c:var(--bad)}}
{_SHADE_RULES}
@media print{{svg .strand,.legend{{print-color-adjust:exact}}}}
"""


def parallel_coordinates(chart: Parallel) -> str:
    """Returns the chart as a figure; "" without results, or without another axis than theirs."""
    *settings, result = chart.axes
    results = [_drawn(line.points.get(len(settings))) for line in chart.series]
    known = [value for value in results if value is not None]
    if not known or not settings:
        return ""
    result_axis = value_axis(result.name, known, _BOTTOM - _TOP)
    axes = [
        _setting_axis(axis, [line.points[number] for line in chart.series])
        for number, axis in enumerate(settings)
    ]
    space = 100 / len(settings)
    lines = []
    for line, value in zip(chart.series, results, strict=True):
        ys = [axis.position(line.points[number]) for number, axis in enumerate(axes)]
        ys.append(_NONE if value is None else _TOP + result_axis.position(value))
        points = [(stretched_x(space * number), y) for number, y in enumerate(ys)]
        kind = "lost" if value is None else f"q{line.color}" if line.best is None else "best"
        lines.append(_line(points, kind, line.name))
    lacks_result = len(known) < len(results)
    height = _NONE + 12 if lacks_result else _HEIGHT
    parts = [stretched(lines, height)]
    for number, (setting, axis) in enumerate(zip(settings, axes, strict=True)):
        parts += _axis(space * number, setting, axis.log, _ticks(setting, axis))
    ticks = [(_TOP + y, text) for y, text in result_axis.ticks()]
    parts += _axis(100, result, result_axis.log, [*ticks, *[(_NONE, "no value")] * lacks_result])
    keys = {"best": chart.best, "q0": "best sixth", "q5": "worst sixth"}
    if lacks_result:
        keys["lost"] = chart.lost
    return _figure(chart, "".join(parts), height, keys)


def _drawn(result: float | None) -> float | None:
    """Returns a result; None if there is none, or if it is NaN or too large for an axis."""
    return result if result is not None and abs(result) <= LARGEST else None


def _figure(chart: Parallel, body: str, height: int, keys: Mapping[str, str]) -> str:
    kind = '"wide many"' if len(chart.series) > _MANY else "wide"
    least = _LEFT + _RIGHT + _SPACE * (len(chart.axes) - 1)
    legend = "".join(
        f'<span class="key key-{kind}">{escape(text)}</span>' for kind, text in keys.items()
    )
    return (
        f"<figure><div class={kind}>"
        f'<div style="padding:0 {_RIGHT}px 0 {_LEFT}px;min-width:{least}px">'
        f'<svg style="height:{height}px;overflow:visible" '
        f'role="img" aria-label="{escape(chart.title)}">{body}</svg>'
        f"</div></div><div class=legend>{legend}</div></figure>"
    )


def _setting_axis(axis: ParallelAxis, values: Sequence[float]) -> Axis:
    low, high = min(values), max(values)
    if axis.places:
        low, high = -0.5, len(axis.places) - 0.5
    return Axis(low, high, _BOTTOM, _TOP, log=axis.is_log)


def _ticks(setting: ParallelAxis, axis: Axis) -> list[tuple[float, str]]:
    """Returns (coordinate, label) of round numbers, or of the places."""
    places = setting.places
    if not places:
        return axis.ticks()
    numbers = range(0, len(places), 1 + len(places) // _MOST_PLACES)
    return [(axis.position(number), places[number]) for number in numbers]


def _line(points: Sequence[tuple[float, float]], kind: str, hint: str) -> str:
    (x, y), *rest = points
    path = f"M{x:.1f} {y:.1f}"
    bend = (rest[0][0] - x) * 0.4
    for next_x, next_y in rest:
        path += (
            f"C{x + bend:.1f} {y:.1f} {next_x - bend:.1f} {next_y:.1f} {next_x:.1f} {next_y:.1f}"
        )
        x, y = next_x, next_y
    return f'<path class="strand {kind}" d="{path}"><title>{escape(hint)}</title></path>'


def _axis(
    x: float, axis: ParallelAxis, is_log: bool, ticks: Sequence[tuple[float, str]]
) -> Iterator[str]:
    """Yields an axis with its name above it. There are no lines to the right of the last one."""
    title = f"{axis.name} (log)" if is_log else axis.name
    yield f'<svg x="{x:.4g}%" overflow=visible><path class=axis d="M0 {_TOP}V{_BOTTOM}"/>'
    yield (
        f'<text y=12 class="mid name">{escape(cut_middle(title, _MOST_NAME))}'
        f"<title>{escape(axis.path)}</title></text>"
    )
    for y, text in ticks:
        label = cut_middle(text, _MOST_LABEL)
        width = LETTER * len(label)
        if x == 100:
            yield f'<path class=axis d="M4 {y:.1f}h-4"/>'
            yield f"<text x=7 y={y + 4:.1f}>{escape(label)}</text>"
            continue
        yield f'<path class=axis d="M-4 {y:.1f}h4"/>'
        # Lines do not cross the label.
        yield f'<rect class=back x="{-9 - width:.0f}" y="{y - 8:.1f}" width="{width + 4:.0f}" '
        yield f'height="16"/><text x=-7 y={y + 4:.1f} class=end>{escape(label)}</text>'
    yield "</svg>"
