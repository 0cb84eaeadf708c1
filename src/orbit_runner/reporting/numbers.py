"""Numbers and durations as short texts."""

from __future__ import annotations

import math
from collections.abc import Sequence

from orbit_runner.utils.flops import format_si

_LEAST_GROUPED = 1e3
_LARGEST = 1e12
_UNITS = (("d", 86400.0), ("h", 3600.0), ("min", 60.0))


def format_number(value: float) -> str:
    """Returns a number with four significant digits, such as `0.5000` or `5,786`."""
    return _group_digits(value) or f"{value:#.4g}"


def short_number(value: float) -> str:
    """Returns a number with at most four significant digits, such as `0.5` or `5,786`."""
    return _group_digits(value) or f"{value:.4g}"


def _group_digits(value: float) -> str:
    if not math.isfinite(value) or not _LEAST_GROUPED <= abs(float(f"{value:.4g}")) < _LARGEST:
        return ""
    return f"{float(f'{value:.4g}'):,.0f}"


def format_duration(seconds: float | None) -> str:
    """Returns a time such as `4:34`, `1:02:03` or `3 d 4:05:06`, or `-` for None."""
    if seconds is None:
        return "-"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if not days and not hours:
        return f"{minutes}:{rest:02}"
    clock = f"{hours}:{minutes:02}:{rest:02}"
    return f"{days} d {clock}" if days else clock


def format_age(seconds: float) -> str:
    """Returns a duration in its largest unit, such as `3 h`."""
    for unit, length in _UNITS:
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def number_or_dash(value: float | None) -> str:
    """Returns a number with at most four significant digits, integers in full, `-` for None."""
    if value is None:
        return "-"
    is_integer = math.isfinite(value) and value == int(value) and abs(value) < _LARGEST
    return f"{int(value):,}" if is_integer else short_number(value)


def bytes_text(count: float | None) -> str:
    """Returns bytes in a readable unit, such as `1.50 MiB`."""
    if count is None:
        return "-"
    value = float(count)
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        del units[0]
    return f"{value:.0f} B" if units[0] == "B" else f"{value:.2f} {units[0]}"


def flops_text(count: float | None) -> str:
    """Returns a number of operations in a readable unit, such as `4.72 M`."""
    return "-" if count is None else format_si(count).rstrip()


def shape_text(shape: Sequence[int | None] | None) -> str:
    """Returns a shape, such as `8×8×32`; `-` if it is unknown."""
    if shape is None:
        return "-"
    return "×".join("?" if size is None else str(size) for size in shape) or "scalar"


def time_text(seconds: float) -> str:
    """Returns a time in a readable unit, such as `12.3 ms` or `1:02:03`."""
    if seconds >= 100:
        return format_duration(seconds)
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs" if seconds else "0 s"
