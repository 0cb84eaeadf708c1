"""What the property tests share: how many examples they draw, and changes of a file.

They always draw the same examples, unless the variable ORBIT_EXAMPLES is set.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

# How many times as many examples, drawn anew in each run; `make soak SUITE=properties` sets it.
FACTOR = int(os.environ.get("ORBIT_EXAMPLES", "0"))
# For each change, where it is, how many bytes it replaces, and what they become.
CHANGES = st.lists(
    st.tuples(st.integers(0, 400), st.integers(0, 8), st.binary(max_size=8)), max_size=4
)


def changed(content: bytes, changes: list[tuple[int, int, bytes]]) -> bytes:
    """Returns a content with some of its bytes replaced."""
    data = bytearray(content)
    for place, length, new in changes:
        data[place : place + length] = new
    return bytes(data)


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
