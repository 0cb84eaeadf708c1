"""Numbers and durations as short texts."""

from __future__ import annotations

import math

_DAY, _HOUR, _MINUTE = 86400, 3600, 60


def format_number(value: float | None) -> str:
    """Returns a number with four significant digits, integers in full, and `-` for None."""
    if value is None:
        return "-"
    is_integer = math.isfinite(value) and value == int(value) and abs(value) < 1e15
    return f"{int(value):,}" if is_integer else f"{value:.4g}"


def format_seconds(seconds: float | None) -> str:
    """Returns a duration such as `43 s`, `12:07` or `3:05:40`; `-` for None."""
    if seconds is None:
        return "-"
    if seconds < _MINUTE:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), _MINUTE)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def format_age(seconds: float) -> str:
    """Returns a duration in its largest unit, such as `3 h`."""
    for unit, length in (("d", _DAY), ("h", _HOUR), ("min", _MINUTE)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
