"""Successive halving: which trials train beyond a rung. A pure function of recorded metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping


def select_best(objectives: Mapping[int, float | None], fraction: float, mode: str) -> list[int]:
    """Returns the trials that continue after a rung, in the order of their numbers.

    Args:
        objectives: The objective at the rung of each trial that was to reach it. None is worse than
            any number: the trial diverged or failed, or its objective is NaN or infinite.
        fraction: The part that is kept, rounded up.
        mode: "max" or "min".

    Returns:
        The best trials, the first ones of equals. Trials without an objective are never kept.
    """
    sign = 1 if mode == "min" else -1
    ranked = sorted(
        (sign * value, number)
        for number, value in objectives.items()
        if value is not None and math.isfinite(value)
    )
    return sorted(number for _, number in ranked[: count_kept(len(objectives), fraction)])


def count_kept(count: int, fraction: float) -> int:
    """Returns how many of `count` trials are kept: at least one."""
    # The product of 0.1 and 30 is a little more than 3.
    return max(1, math.ceil(round(count * fraction, 9)))
