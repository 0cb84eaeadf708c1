"""Whether servers are there: asked from the outside, for TensorFlow may wait for them forever."""

from __future__ import annotations

import enum
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from orbit_runner.distribute.cluster.addresses import split_address
from orbit_runner.distribute.cluster.description import Member
from orbit_runner.distribute.cluster.errors import MemberLost

# How a client of HTTP/2, and so of gRPC, begins (RFC 9113, section 3.4): an empty SETTINGS frame
# after the magic words. The kernel accepts connections for a process that hangs; only a process
# that runs answers.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_PAUSE_SECONDS, _QUIET_SECONDS, _PROBE_SECONDS = 0.2, 2.0, 2.0


class Sign(enum.Enum):
    """What a server gives to see."""

    ALIVE = "answers"
    GONE = "nobody listens"
    SILENT = "does not answer"


def sign_of_life(address: str, seconds: float = _PROBE_SECONDS) -> Sign:
    """Asks a gRPC server whether it is there.

    Args:
        address: Its `host:port`.
        seconds: How long to wait for an answer.
    """
    try:
        with socket.create_connection(split_address(address), seconds) as talk:
            talk.sendall(_PREFACE)
            return Sign.ALIVE if talk.recv(1) else Sign.GONE
    except TimeoutError:
        return Sign.SILENT
    except OSError:
        return Sign.GONE


def format_members(members: Iterable[Member]) -> str:
    """Returns members with their addresses, as messages show them."""
    return ", ".join(f"{member} ({member.address})" for member in members)


def wait_for_servers(
    members: Sequence[Member], *, timeout: float, tell: Callable[[str], None]
) -> None:
    """Waits until all servers answer.

    Args:
        members: The servers.
        timeout: Seconds to wait.
        tell: Is told whom it waits for, if that takes longer than a moment.

    Raises:
        MemberLost: Somebody did not come.
    """
    begun, told, missing = time.monotonic(), "", list(members)
    while True:
        missing = [m for m in missing if sign_of_life(m.address) is not Sign.ALIVE]
        waited = time.monotonic() - begun
        if not missing:
            return
        if waited > timeout:
            raise MemberLost(
                f"waited {waited:.0f} s, and nothing was heard of {format_members(missing)}\n"
                "see whether that process runs and its port can be reached; "
                "runtime.cluster_start_timeout says how long to wait"
            )
        if waited > _QUIET_SECONDS and format_members(missing) != told:
            told = format_members(missing)
            tell(f"waiting for {told}")
        time.sleep(_PAUSE_SECONDS)


class Watch:
    """Looks after the servers of a run, in a thread of its own.

    A worker that is gone is no loss: others do its work, and another process may take its place. A
    parameter server that is gone, a member that hangs (TensorFlow waits for it without end), and
    the lack of any worker are.
    """

    def __init__(
        self,
        members: Sequence[Member],
        *,
        silence: float,
        patience: float,
        give_up: Callable[[str], None] | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        """Does nothing yet.

        Args:
            members: The servers.
            silence: Seconds without an answer after which a member counts as lost.
            patience: Seconds to wait for any worker once there is none.
            give_up: Called with the reason where the process is still there as long again after a
                loss: it waits inside TensorFlow. Ends it, unless something else is given.
            tell: Called with a message when a worker is gone, and when one is back. Prints it to
                standard error, unless something else is given.
        """
        self._members, self._silence, self._patience = members, silence, patience
        self._give_up, self._tell = give_up or _end_process, tell or _print
        self._away: set[Member] = set()
        # When each was last seen to be alive, and what it gave to see since.
        self._seen = dict.fromkeys(members, 0.0)
        self._signs = dict.fromkeys(members, Sign.ALIVE)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, name="watch", daemon=True)

    def start(self) -> None:
        """Starts to look."""
        self._seen = dict.fromkeys(self._members, time.monotonic())
        self._thread.start()

    def stop(self) -> None:
        """Stops looking."""
        self._stop.set()

    def lost(self) -> str:
        """Returns who is lost, and why; "" while nobody is."""
        now = time.monotonic()
        for member in self._members:
            sign, silent = self._signs[member], now - self._seen[member]
            gone = sign is Sign.GONE and member.role == "ps"
            if gone or (sign is Sign.SILENT and silent > self._silence):
                return f"{format_members([member])}: {sign.value}"
        workers = [member for member in self._members if member.role == "worker"]
        away = [m for m in workers if self._signs[m] is not Sign.ALIVE]
        if away == workers and all(now - self._seen[m] > self._patience for m in workers):
            return f"{format_members(workers)}: no worker is left"
        return ""

    def _look(self) -> None:
        since = None
        while not self._stop.wait(self._silence / 5):
            for member in self._members:
                sign = sign_of_life(member.address, max(1.0, self._silence / 5))
                if sign is Sign.ALIVE:
                    self._seen[member] = time.monotonic()
                self._signs[member] = sign
            self._report_workers()
            reason = self.lost()
            since = (since or time.monotonic()) if reason else None
            if since and time.monotonic() - since > self._silence and not self._stop.is_set():
                self._give_up(reason)
                return

    def _report_workers(self) -> None:
        workers = [member for member in self._members if member.role == "worker"]
        alive = [worker for worker in workers if self._signs[worker] is Sign.ALIVE]
        gone = [worker for worker in workers if self._signs[worker] is Sign.GONE]
        for worker in gone:
            if worker not in self._away:
                who = f"{format_members([worker])} is gone: {Sign.GONE.value} there"
                self._away.add(worker)
                self._tell(
                    f"{who}; the other workers take its steps"
                    if alive
                    else f"{who}; waiting up to {self._patience:.0f} s for a worker to come back"
                )
        for worker in self._away.intersection(alive):
            self._away.remove(worker)
            self._tell(f"{format_members([worker])} is back")


def lost_message(reason: str) -> str:
    """Returns what to tell when a server is lost.

    Args:
        reason: Which, and how that is known.
    """
    return (
        f"chief: {reason}\n"
        "start all members again with the same flags: they go on from the last checkpoint"
    )


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _end_process(reason: str) -> None:
    print(f"runner: {lost_message(reason)}", file=sys.stderr, flush=True)
    os._exit(MemberLost.exit_code)
