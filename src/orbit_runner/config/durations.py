"""Durations in configs and flags: `3h`, `1h30m`, `45s`, or a number of seconds."""

from __future__ import annotations

import re

from orbit_runner.errors import shorten

# The longest duration. Sums of it with a time are still valid dates.
LONGEST_DAYS = 36_500
_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "min": 60.0, "s": 1.0}
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
# Also used in the JSON Schema, so it has no named groups and no possessive quantifiers.
PATTERN = (
    rf"^(?=[0-9])(?:({_NUMBER})d)?(?:({_NUMBER})h)?(?:({_NUMBER})(?:m|min))?(?:({_NUMBER})s)?$"
)
ALLOWED = "a number of seconds, or numbers with the units d, h, m and s, such as 90s, 3h or 1h30m"
_LONGEST_TEXT = 100


class DurationError(ValueError):
    """Raised if a text is not a duration. The message contains the text and what is allowed."""


def duration_seconds(value: str | float) -> float:
    """Returns a duration in seconds. Raises `DurationError` if a text is not one."""
    if not isinstance(value, str):
        return float(value)
    match = re.match(PATTERN, value) if len(value) <= _LONGEST_TEXT else None
    if match is None or "\n" in value:
        raise DurationError(f"got {shorten(repr(value))}\nallowed: {ALLOWED}")
    numbers = (float(number or 0) for number in match.groups())
    seconds = sum(n * _SECONDS[unit] for n, unit in zip(numbers, "dhms", strict=True))
    if not seconds:
        raise DurationError(f"got {value!r}, allowed: more than 0")
    if seconds > LONGEST_DAYS * _SECONDS["d"]:
        raise DurationError(f"got {value!r}, allowed: at most {LONGEST_DAYS}d")
    return seconds


def describe_duration(value: str | float) -> str:
    """Returns a duration as it was given; a number gets its unit: `90s`."""
    return value if isinstance(value, str) else f"{value:g}s"
