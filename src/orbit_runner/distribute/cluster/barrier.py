"""A barrier at which the members of a cluster wait for each other before TensorFlow starts.

TensorFlow holds Python's global lock while it waits for a member that never starts, so that not
even a timer runs. Here, each member first listens at its own address, greets all others, and waits
until all others have greeted it. So missing members can be named, and members that run different
experiments detect this before they train on each other's gradients.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from orbit_runner.distribute.cluster.addresses import (
    Liveness,
    describe_listen_error,
    listening_socket,
    probe,
    split_address,
)
from orbit_runner.distribute.cluster.description import (
    Cluster,
    ClusterError,
    Member,
    MemberLost,
    format_members,
)

if TYPE_CHECKING:
    from orbit_runner.utils.types import JsonObject


_PAUSE_SECONDS = 0.1
_CONNECTION_SECONDS = 5.0
_SILENCE_SECONDS = 2.0
_LARGEST_GREETING = 65536


def wait_at_barrier(
    cluster: Cluster,
    others: Sequence[Member],
    *,
    purpose: str,
    timeout: float,
    tell: Callable[[str], None],
) -> None:
    """Waits until this member and all others have reached each other.

    `purpose` describes what this member runs, and must be the same text on all members. `timeout`
    is in seconds. `tell` is called with the missing members if the wait is longer than a moment.
    Raises `ClusterError` if another member runs something else or the port is in use, and
    `MemberLost` if a member does not answer in time.
    """
    greeting = {
        "from": [cluster.me.role, cluster.me.index],
        "members": {role: list(addresses) for role, addresses in cluster.jobs.items()},
        "purpose": purpose,
    }
    barrier = _Barrier(cluster.me, greeting)
    try:
        _wait(lambda: barrier.greet_others(others), timeout, tell, f"{cluster.me}: ")
    finally:
        barrier.close()


def wait_for_servers(
    members: Sequence[Member], *, timeout: float, tell: Callable[[str], None]
) -> None:
    """Waits until all servers answer; raises `MemberLost` after `timeout` seconds.

    `tell` is called with the missing servers if the wait is longer than a moment.
    """

    def missing() -> list[Member]:
        return [m for m in members if probe(m.address) is not Liveness.ALIVE]

    _wait(missing, timeout, tell)


def _wait(
    missing: Callable[[], list[Member]], timeout: float, tell: Callable[[str], None], who: str = ""
) -> None:
    begun = time.monotonic()
    reported = ""
    while members := missing():
        waited = time.monotonic() - begun
        names = format_members(members)
        if waited > timeout:
            raise MemberLost(
                f"{who}no response from {names} within {waited:.0f} s\n"
                "check that the process is running and its port is reachable; "
                "runtime.cluster_start_timeout sets how long to wait"
            )
        if waited > _SILENCE_SECONDS and names != reported:
            tell(f"waiting for {names}")
            reported = names
        time.sleep(_PAUSE_SECONDS)


class _Barrier:
    """Listens and greets, and records which members it has greeted and which have greeted it."""

    def __init__(self, me: Member, greeting: JsonObject) -> None:
        self._me = me
        self._greeting = greeting
        self._greeted_by: set[Member] = set()
        self._reached: set[Member] = set()
        self._mismatch = ""
        try:
            self._socket = listening_socket(split_address(me.address)[1])
        except OSError as error:
            raise ClusterError(f"{me}: {describe_listen_error(me.address, error)}") from error
        self._socket.settimeout(_PAUSE_SECONDS)
        self._open = True
        self._thread = threading.Thread(target=self._receive, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops listening, so that TensorFlow can use the port."""
        self._open = False
        self._thread.join()
        self._socket.close()

    def greet_others(self, others: Iterable[Member]) -> list[Member]:
        """Greets the others, and returns those that have not been reached or have not greeted."""
        missing = [m for m in others if not (m in self._reached and m in self._greeted_by)]
        for member in missing:
            if member not in self._reached:
                self._greet(member)
        if self._mismatch:
            raise ClusterError(self._mismatch)
        return missing

    def _greet(self, member: Member) -> None:
        try:
            with socket.create_connection(
                split_address(member.address), _CONNECTION_SECONDS
            ) as connection:
                answer = _exchange(connection, self._greeting)
        except (OSError, ValueError):
            return
        answering = self._compare(answer)
        if answering == member:
            self._reached.add(member)
        else:
            self._mismatch = f"{member.address}: expected {member}, got {answering}"

    def _receive(self) -> None:
        while self._open:
            with contextlib.suppress(OSError, ValueError, TypeError):
                connection, _ = self._socket.accept()
                with connection:
                    greeting = _exchange(connection, self._greeting)
                self._greeted_by.add(self._compare(greeting))

    def _compare(self, greeting: JsonObject) -> Member:
        """Returns the member that sent a greeting, after comparing the greeting with this one's."""
        who = Member(*greeting["from"])
        for field, difference in (
            ("members", "has a different cluster"),
            ("purpose", "runs a different experiment, mode or config"),
        ):
            theirs = greeting.get(field)
            ours = self._greeting[field]
            if theirs != ours:
                self._mismatch = (
                    f"{who} {difference}\n  {self._me}: {ours}\n  {who}: {theirs}\n"
                    "start all members with the same flags and files"
                )
        return who


def _exchange(connection: socket.socket, greeting: JsonObject) -> JsonObject:
    connection.settimeout(_CONNECTION_SECONDS)
    connection.sendall(json.dumps(greeting).encode() + b"\n")
    with connection.makefile("rb") as lines:
        answer: JsonObject = json.loads(lines.readline(_LARGEST_GREETING))
    who = answer.get("from") if isinstance(answer, dict) else None
    if not (isinstance(who, list) and [type(part) for part in who] == [str, int]):
        raise ValueError("no greeting")
    return answer
