"""Axes of charts: scales, ticks, and their lines and labels as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

WIDTH, HEIGHT = 480, 270
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 10, 34
# A loss whose values span this factor is drawn on a logarithmic axis.
_LOG_RATIO = 10.0


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
        yield f'<path class=grid d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>'
        yield f"<text x={LEFT - 6} y={y + 4:.1f} class=end>{format_tick(value)}</text>"
    yield f'<path class=axis d="M{LEFT} {HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>'


def step_labels(axis: Axis) -> Iterator[str]:
    """Yields the labels of the horizontal axis of a chart by step or by another integer."""
    for value in axis.ticks():
        if value == int(value):
            yield x_label(axis.position(value), format_tick(value))


def x_label(x: float, text: str) -> str:
    """Returns the label of one place of the horizontal axis."""
    return f"<text x={x:.1f} y={HEIGHT - 18} class=mid>{escape(text)}</text>"


def x_title(text: str) -> str:
    """Returns the title of the horizontal axis."""
    return (
        f"<text x={(LEFT + WIDTH - RIGHT) / 2:.0f} y={HEIGHT - 5} class=mid>{escape(text)}</text>"
    )


def cross(x: float, y: float, hint: str) -> str:
    """Returns a mark for a value that is missing or not finite; `hint` says what it is."""
    path = f"M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8"
    return f'<path class=bad d="{path}"><title>{escape(hint)}</title></path>'


def format_tick(value: float) -> str:
    """Returns a number in few characters: 0.25, 1500, 12k, 2.5M, 1.5e-4."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == 'k' else size):.4g}{unit}"
    if 0 < abs(value) < 1e-3:
        mantissa, _, exponent = f"{value:.3e}".partition("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return f"{value:.4g}"
