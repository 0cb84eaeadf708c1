"""Finds free ports."""

from __future__ import annotations

import contextlib
import random

from orbit_runner.distribute.cluster.addresses import listening_socket
from orbit_runner.errors import RunnerError

# Below the ephemeral ports of outgoing connections (from 32768 on Linux): between the choice of a
# port and the moment a member listens on it, TensorFlow is imported, and in those seconds any
# outgoing connection could take an ephemeral port.
_FIRST, _LAST = 15000, 29999
_TRIES = 1000


def free_ports(count: int) -> list[int]:
    """Returns ports that were free a moment ago; raises an error if there are not enough.

    The ports are random, so that two launchers at the same time rarely choose the same.
    """
    found: list[int] = []
    with contextlib.ExitStack() as held:
        for port in random.sample(range(_FIRST, _LAST + 1), _TRIES):
            if len(found) == count:
                return found
            with contextlib.suppress(OSError):
                held.enter_context(listening_socket(port))
                found.append(port)
    raise RunnerError(f"cannot find {count} free ports from {_FIRST} to {_LAST} on this machine")
