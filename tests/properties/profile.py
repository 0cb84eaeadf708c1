"""How many examples the property tests draw: always the same ones, unless ORBIT_EXAMPLES is set."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, settings

# How many times as many examples, drawn anew in each run; `make fuzz` sets it.
FACTOR = int(os.environ.get("ORBIT_EXAMPLES", "0"))


def examples(count: int) -> Callable[[Any], Any]:
    """Returns the decorator of a test that draws `count` examples, or `FACTOR` times as many."""
    return settings(
        max_examples=count * max(1, FACTOR),
        derandomize=FACTOR == 0,
        database=None,
        deadline=None,
        # Without making a failing example small, which takes minutes.
        phases=[Phase.generate],
        suppress_health_check=[*HealthCheck],
    )
