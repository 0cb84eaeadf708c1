"""A curve of values as text."""

from __future__ import annotations

import math
from collections.abc import Sequence

_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float]) -> str:
    """Returns one bar character per finite value; "" if fewer than two are finite."""
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) < 2:
        return ""
    low, span = min(finite), (max(finite) - min(finite)) or 1.0
    heights = (round((value - low) / span * (len(_BARS) - 1)) for value in finite)
    return "".join(_BARS[height] for height in heights)
