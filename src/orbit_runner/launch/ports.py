"""Ports that nobody listens at."""

from __future__ import annotations

import contextlib
import random

from orbit_runner.distribute.cluster.addresses import listening_socket
from orbit_runner.errors import RunnerError

# Below the ports that systems hand to outgoing connections (from 32768 on Linux): between the
# choice of a port and the moment a member listens there, TensorFlow is imported, and in those
# seconds any outgoing connection could take a port of that kind.
_FIRST, _LAST = 15000, 29999
_TRIES = 1000


def free_ports(count: int) -> list[int]:
    """Finds ports, by chance, so that two launchers at the same time hardly meet.

    Args:
        count: How many.

    Returns:
        Different ports that were free a moment ago.

    Raises:
        RunnerError: There are not as many.
    """
    found: list[int] = []
    with contextlib.ExitStack() as held:
        for port in random.sample(range(_FIRST, _LAST + 1), _TRIES):
            if len(found) == count:
                return found
            with contextlib.suppress(OSError):
                held.enter_context(listening_socket(port))
                found.append(port)
    raise RunnerError(f"no {count} free ports from {_FIRST} to {_LAST} on this machine")
