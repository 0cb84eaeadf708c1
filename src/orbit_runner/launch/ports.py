"""Finds free ports."""

from __future__ import annotations

import contextlib
import random
import socket

from orbit_runner.distribute.cluster.addresses import listening_socket
from orbit_runner.errors import RunnerError

# Below the ephemeral ports of outgoing connections (from 32768 on Linux): between the choice of a
# port and the moment a member listens on it, TensorFlow is imported, and in those seconds any
# outgoing connection could take an ephemeral port.
_FIRST, _LAST = 15000, 29999
_TRIES = 1000
_CONNECT_SECONDS = 5.0


def check_host(host: str) -> None:
    """Raises `RunnerError` if processes of this machine cannot connect to each other at `host`."""
    try:
        with socket.create_server((host, 0)) as server:
            socket.create_connection(server.getsockname(), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        raise RunnerError(
            f"the members of a local cluster connect to {host}, which is not possible here: "
            f"{error.strerror or error}\nenable the loopback device: ip link set lo up"
        ) from None


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
