"""Checks from outside whether servers are alive, because TensorFlow may wait for them forever."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from orbit_runner.distribute.cluster.addresses import Liveness, probe
from orbit_runner.distribute.cluster.description import Member, MemberLost
from orbit_runner.utils.signals import show_cursor

_PAUSE_SECONDS = 0.2
_QUIET_SECONDS = 2.0


def format_members(members: Iterable[Member]) -> str:
    """Returns members with their addresses, as messages show them."""
    return ", ".join(f"{member} ({member.address})" for member in members)


def wait_for_servers(
    members: Sequence[Member], *, timeout: float, tell: Callable[[str], None]
) -> None:
    """Waits until all servers answer; raises `MemberLost` after `timeout` seconds.

    `tell` is called with the missing servers if the wait is longer than a moment.
    """
    begun = time.monotonic()
    told = ""
    missing = list(members)
    while True:
        missing = [m for m in missing if probe(m.address) is not Liveness.ALIVE]
        waited = time.monotonic() - begun
        if not missing:
            return
        if waited > timeout:
            raise MemberLost(
                f"no response from {format_members(missing)} within {waited:.0f} s\n"
                "check that the process is running and its port is reachable; "
                "runtime.cluster_start_timeout sets how long to wait"
            )
        if waited > _QUIET_SECONDS and format_members(missing) != told:
            told = format_members(missing)
            tell(f"waiting for {told}")
        time.sleep(_PAUSE_SECONDS)


class Watch:
    """Watches the servers of a run, in a separate thread.

    The run is lost if a parameter server is gone, if a member hangs (TensorFlow waits for it
    forever), or if no worker is left. It is not lost if one worker is gone: others do its work, and
    another process may replace it.

    A member hangs if it has not answered for `silence` seconds. If no worker is left, the watch
    waits `patience` seconds for one. `give_up` is called with the reason if the process is still
    running another `silence` seconds after a loss, because it waits inside TensorFlow; by default,
    it ends the process. `tell` is called with a message when a worker is gone, and when one is
    back; by default, it prints to stderr.
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
        self._members = members
        self._silence = silence
        self._patience = patience
        self._give_up = give_up or _end_process
        self._tell = tell or _print
        self._reported_lost: set[Member] = set()
        # When each member was last known to be alive, and its current state.
        self._seen = dict.fromkeys(members, 0.0)
        self._states = dict.fromkeys(members, Liveness.ALIVE)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="watch", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._seen = dict.fromkeys(self._members, time.monotonic())
        self._thread.start()

    def stop(self) -> None:
        """Stops the thread, without waiting for it."""
        self._stop.set()

    def failure_reason(self) -> str:
        """Returns which members are lost, and why; "" if the run is not lost."""
        now = time.monotonic()
        for member in self._members:
            state = self._states[member]
            silent = now - self._seen[member]
            gone = state is Liveness.GONE and member.role == "ps"
            if gone or (state is Liveness.SILENT and silent > self._silence):
                return f"{format_members([member])}: {state.value}"
        workers = [member for member in self._members if member.role == "worker"]
        away = [m for m in workers if self._states[m] is not Liveness.ALIVE]
        if away == workers and all(now - self._seen[m] > self._patience for m in workers):
            return f"{format_members(workers)}: no worker is left"
        return ""

    def _poll(self) -> None:
        since = None
        while not self._stop.wait(self._silence / 5):
            for member in self._members:
                state = probe(member.address, max(1.0, self._silence / 5))
                if state is Liveness.ALIVE:
                    self._seen[member] = time.monotonic()
                self._states[member] = state
            self._report_workers()
            reason = self.failure_reason()
            since = (since or time.monotonic()) if reason else None
            if since and time.monotonic() - since > self._silence and not self._stop.is_set():
                self._give_up(reason)
                return

    def _report_workers(self) -> None:
        workers = [member for member in self._members if member.role == "worker"]
        alive = [worker for worker in workers if self._states[worker] is Liveness.ALIVE]
        gone = [worker for worker in workers if self._states[worker] is Liveness.GONE]
        for worker in gone:
            if worker not in self._reported_lost:
                who = f"{format_members([worker])} was lost: {Liveness.GONE.value} there"
                self._reported_lost.add(worker)
                self._tell(
                    f"{who}; the other workers take over its steps"
                    if alive
                    else f"{who}; waiting up to {self._patience:.0f} s for a worker to come back"
                )
        for worker in self._reported_lost.intersection(alive):
            self._reported_lost.remove(worker)
            self._tell(f"{format_members([worker])} is back")


def lost_message(reason: str) -> str:
    """Returns the message for a lost server; `reason` says which one is lost, and why."""
    return (
        f"chief: {reason}\n"
        "restart all members with the same flags to resume from the last checkpoint"
    )


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _end_process(reason: str) -> None:
    print(f"runner: {lost_message(reason)}", file=sys.stderr, flush=True)
    show_cursor()
    os._exit(MemberLost.exit_code)
