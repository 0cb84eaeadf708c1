"""Line charts as inline SVG, without scripts. Colors come from the style sheet of the page."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape

COLORS = 8  # Further series have the same colors, with dashes.

_WIDTH, _HEIGHT = 480, 270
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 10, 34
_BUCKETS = 300  # More points than this are drawn as the range of each bucket.
_MOST_DOTS = 60
_DASHES = ("", "6 3", "2 3", "8 3 2 3")
# A loss whose values span this factor is drawn on a logarithmic axis.
_LOG_RATIO = 10.0


@dataclasses.dataclass(frozen=True)
class Series:
    """A line of a chart.

    Attributes:
        name: The name in the legend.
        points: Values by step, in ascending order of steps; NaN where there is no number.
        color: The index of the color.
    """

    name: str
    points: Mapping[int, float]
    color: int = 0


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
    steps = [step for one in series for step in one.points]
    if not values:
        return ""
    y_axis = _value_axis("loss" if may_be_log else title, values)
    x_axis = _Axis(min(steps), max(steps), _LEFT, _WIDTH - _RIGHT)
    parts = [*_grid(x_axis, y_axis), *(_text_of_axis(x_label))]
    for step, meaning in (marks or {}).items():
        if min(steps) <= step <= max(steps):
            parts.append(_mark(step, meaning, x_axis))
    for one in series:
        parts += _series(one, x_axis, y_axis)
    legend = "".join(
        f'<span class="key c{one.color % COLORS}">{escape(one.name)}</span>' for one in series
    )
    return (
        f"<figure><figcaption>{escape(title)}{' (log)' if y_axis.log else ''}</figcaption>"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">'
        f"{''.join(parts)}</svg>"
        f"{f'<div class=legend>{legend}</div>' if len(series) > 1 else ''}</figure>"
    )


def share_bar(title: str, shares: Mapping[str, float]) -> str:
    """Returns a figure with one bar, divided in proportion to the values, and a legend."""
    total = sum(shares.values()) or 1.0
    parts, start, height = [], 0.0, 22
    for index, (name, value) in enumerate(shares.items()):
        width = value / total * _WIDTH
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
        f'<figure><svg viewBox="0 0 {_WIDTH} {height}" preserveAspectRatio="none" class=bar '
        f'role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>'
        f"<div class=legend>{legend}</div></figure>"
    )


class _Axis:
    """Maps values to coordinates, and chooses the ticks."""

    def __init__(
        self, low: float, high: float, start: float, end: float, *, log: bool = False
    ) -> None:
        self.log = log
        low, high = (math.log10(low), math.log10(high)) if log else (low, high)
        if high == low:
            margin = abs(low) * 0.05 or 0.5
            low, high = low - margin, high + margin
        self._low, self._high, self._start, self._end = low, high, start, end

    def position(self, value: float) -> float:
        """Returns the coordinate of a value."""
        found = math.log10(value) if self.log else value
        share = (found - self._low) / (self._high - self._low)
        return self._start + share * (self._end - self._start)

    def ticks(self) -> list[float]:
        """Returns the values at which lines are drawn: about five round numbers."""
        if self.log and self._high - self._low >= 1:
            lowest, highest = math.floor(self._low), math.floor(self._high)
            # With less than three decades, 2 and 5 as well.
            factors = (1, 2, 5) if self._high - self._low < 3 else (1,)
            powers = range(lowest, highest + 1, max(1, (highest - lowest) // 5))
            found = [factor * 10.0**power for power in powers for factor in factors]
            return [value for value in found if self._low <= math.log10(value) <= self._high]
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


def _value_axis(title: str, values: Sequence[float]) -> _Axis:
    low, high = min(values), max(values)
    log = is_logarithmic(title, low, high)
    if log:
        low, high = low / (high / low) ** 0.04, high * (high / low) ** 0.04
    elif high > low:
        margin = (high - low) * 0.04
        low, high = low - margin, high + margin
    return _Axis(low, high, _HEIGHT - _BOTTOM, _TOP, log=log)


def _grid(x_axis: _Axis, y_axis: _Axis) -> Iterator[str]:
    for value in y_axis.ticks():
        y = y_axis.position(value)
        yield f'<path class=grid d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>'
        yield f"<text x={_LEFT - 6} y={y + 4:.1f} class=end>{format_tick(value)}</text>"
    for value in x_axis.ticks():
        if value != int(value):
            continue
        x = x_axis.position(value)
        yield f"<text x={x:.1f} y={_HEIGHT - 18} class=mid>{format_tick(value)}</text>"
    yield f'<path class=axis d="M{_LEFT} {_HEIGHT - _BOTTOM}H{_WIDTH - _RIGHT}"/>'


def _text_of_axis(label: str) -> Iterator[str]:
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    yield f"<text x={middle:.0f} y={_HEIGHT - 3} class=mid>{escape(label)}</text>"


def _mark(step: int, meaning: str, x_axis: _Axis) -> str:
    x, hint = x_axis.position(step), escape(f"{meaning} at step {step:,}")
    return f'<path class=mark d="M{x:.1f} {_TOP}V{_HEIGHT - _BOTTOM}"><title>{hint}</title></path>'


def _series(one: Series, x_axis: _Axis, y_axis: _Axis) -> Iterator[str]:
    def is_drawn(value: float) -> bool:
        return math.isfinite(value) and (not y_axis.log or value > 0)

    color, dash = one.color % COLORS, _DASHES[one.color // COLORS % len(_DASHES)]
    points = list(_reduced(list(one.points.items())))
    commands, pen_down = [], False
    for step, value in points:
        if is_drawn(value):
            x, y = x_axis.position(step), y_axis.position(value)
            commands.append(f"{'L' if pen_down else 'M'}{x:.1f} {y:.1f}")
        pen_down = is_drawn(value)
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
        x, y = x_axis.position(step), _HEIGHT - _BOTTOM
        yield f'<path class=bad d="M{x - 4:.1f} {y - 8}l8 8m0 -8l-8 8">'
        yield f"<title>{escape(one.name)}, step {step:,}: not a finite number</title></path>"


def _reduced(points: list[tuple[int, float]]) -> Iterator[tuple[int, float]]:
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


def format_tick(value: float) -> str:
    """Returns a number in few characters: 0.25, 1500, 12k, 2.5M, 1.5e-4."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == 'k' else size):.4g}{unit}"
    if 0 < abs(value) < 1e-3:
        mantissa, _, exponent = f"{value:.3e}".partition("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return f"{value:.4g}"
