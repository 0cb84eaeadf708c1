"""Notices that another member of the cluster is lost, and says which.

TensorFlow notices lost workers of `multi_worker_mirrored`; its errors become clear messages. The
chief of parameter servers watches its members itself, as `runner launch` does
(`launch/supervisor.py`).
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute.cluster.addresses import Liveness, probe
from orbit_runner.distribute.cluster.description import (
    Member,
    MemberLost,
    format_members,
    members_of,
)
from orbit_runner.distribute.parameter_servers import SERVERS
from orbit_runner.distribute.process_group import is_asynchronous, traits_of
from orbit_runner.errors import cut_at_word, first_line
from orbit_runner.tf_internals import cluster_of
from orbit_runner.utils.streams import print_message

# Raised by collectives and the coordination service; the last two if a peer exits normally.
_LOSS_ERRORS = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.DeadlineExceededError,
    tf.errors.CancelledError,
    tf.errors.InternalError,
    tf.errors.FailedPreconditionError,
    tf.errors.UnknownError,
)
_LOSS_MESSAGES = re.compile(
    r"collective ops|coordination ?service|heartbeat|recvmsg|socket|peer", re.I
)
_CAUSE = re.compile(r"ops is aborted by: (.+)")
_TASK = re.compile(r"/job:(\w+)(?:/replica:\d+)?/task:(\d+)")


@contextlib.contextmanager
def failure_detection_scope(
    strategy: tf.distribute.Strategy, runtime: RuntimeConfig
) -> Iterator[None]:
    """Raises `MemberLost` if a lost member of the cluster makes a `with` block fail."""
    if is_asynchronous(strategy):
        with _server_watch_scope(strategy, runtime):
            yield
        return
    others = _other_workers(strategy)
    if not others:
        yield
        return
    try:
        yield
    except Exception as error:
        # A save that fails for this reason raises its own error.
        cause = error if isinstance(error, _LOSS_ERRORS) else error.__cause__
        if not isinstance(cause, _LOSS_ERRORS) or not _LOSS_MESSAGES.search(str(cause)):
            raise
        match = _CAUSE.search(str(cause))
        reason = cut_at_word(match[1]) if match else first_line(cause)
        resolver = strategy.cluster_resolver
        me = f"{resolver.task_type} {resolver.task_id}"
        raise _member_lost(me, f"{_describe_lost(cause, others)} was lost\n  {reason}") from error


def _member_lost(me: str, reason: str) -> MemberLost:
    return MemberLost(
        f"{me}: {reason}\n"
        "restart all members with the same flags to resume from the last checkpoint"
    )


def _other_workers(strategy: tf.distribute.Strategy) -> list[Member]:
    if not traits_of(strategy).synchronous_workers:
        return []
    resolver = strategy.cluster_resolver
    me = Member(resolver.task_type, resolver.task_id)
    return [m for m in members_of(resolver.cluster_spec().as_dict()) if m != me]


def _describe_lost(error: Exception, others: list[Member]) -> str:
    """Returns the workers that the error names, or else all others, of which one was lost."""
    named = {Member(role, int(index)) for role, index in _TASK.findall(str(error))}
    lost = [member for member in others if member in named] or others
    return f"{'one of ' if len(lost) > 1 else ''}{format_members(lost)}"


def _end_process(reason: str) -> None:
    print_message(f"runner: {_member_lost('chief', reason)}")
    os._exit(MemberLost.exit_code)


class ServerWatch:
    """Watches the servers of a run, in a separate thread: TensorFlow may wait for them forever.

    The run is lost if a parameter server is gone, if a member has not answered for `silence`
    seconds, or if there has been no worker for as long. If one worker is gone, others do its work,
    also while it restarts. `give_up` is called with the reason if the process is still running
    another `silence` seconds after a loss, because it waits inside TensorFlow.
    """

    def __init__(
        self,
        members: Sequence[Member],
        *,
        silence: float,
        give_up: Callable[[str], None] = _end_process,
    ) -> None:
        self._workers = [member for member in members if member.role == "worker"]
        self._silence = silence
        self._give_up = give_up
        # When each member was last known to be alive, and its current state.
        self._seen = dict.fromkeys(members, time.monotonic())
        self._states = dict.fromkeys(members, Liveness.ALIVE)
        self._stop = threading.Event()
        threading.Thread(target=self._poll, name="watch", daemon=True).start()

    def stop(self) -> None:
        """Stops the thread, without waiting for it."""
        self._stop.set()

    def failure_reason(self) -> str:
        """Returns which members are lost, and why; "" if the run is not lost."""
        now = time.monotonic()
        overdue = {m for m, seen in self._seen.items() if now - seen > self._silence}
        for member, state in self._states.items():
            is_gone = state is Liveness.GONE and member.role == "ps"
            if is_gone or (state is Liveness.SILENT and member in overdue):
                return f"{format_members([member])}: {state.value}"
        if all(m in overdue and self._states[m] is not Liveness.ALIVE for m in self._workers):
            return f"{format_members(self._workers)}: no worker is left"
        return ""

    def _poll(self) -> None:
        since = None
        while not self._stop.wait(self._silence / 5):
            for member in self._seen:
                state = probe(member.address, max(1.0, self._silence / 5))
                if state is Liveness.ALIVE:
                    self._seen[member] = time.monotonic()
                self._states[member] = state
            reason = self.failure_reason()
            since = (since or time.monotonic()) if reason else None
            if since and time.monotonic() - since > self._silence and not self._stop.is_set():
                self._give_up(reason)
                return


_watches: dict[tf.distribute.Strategy, ServerWatch] = {}


@contextlib.contextmanager
def _server_watch_scope(
    strategy: tf.distribute.ParameterServerStrategy, runtime: RuntimeConfig
) -> Iterator[None]:
    """Watches the servers during a `with` block.

    Raises `MemberLost` if a parameter server is lost, or was restarted and has lost its variables.
    A server that hangs counts as lost after `runtime.heartbeat_timeout` seconds without an answer.
    If this thread waits inside TensorFlow for it, the process exits with the exit code of
    `MemberLost`.
    """
    servers = members_of(cluster_of(strategy), SERVERS)
    lost = False
    watch = _watches[strategy] = ServerWatch(servers, silence=runtime.heartbeat_timeout)
    try:
        yield
    except Exception as error:
        reason = _loss_reason(error, servers)
        lost = bool(reason) or isinstance(error, MemberLost)
        if not reason:
            raise
        raise _member_lost("chief", reason) from error
    finally:
        del _watches[strategy]
        # Even deleting a variable waits for a server that hangs. So the watch continues after a
        # loss, and then ends the process.
        if not lost:
            watch.stop()


def check_servers(strategy: tf.distribute.Strategy) -> None:
    """Raises `MemberLost` if a server is lost; does nothing outside of the scope."""
    watch = _watches.get(strategy)
    reason = watch.failure_reason() if watch is not None else ""
    if reason:
        raise _member_lost("chief", reason)


def _loss_reason(error: BaseException | None, servers: list[Member]) -> str:
    """Returns which lost parameter server caused an error, and how; "" if none did."""
    while error is not None and not isinstance(error, tf.errors.OpError):
        error = None if isinstance(error, MemberLost) else error.__cause__ or error.__context__
    if error is None:
        return ""
    lost = [m for m in servers if m.role == "ps" and probe(m.address) is not Liveness.ALIVE]
    if not lost and not isinstance(error, (tf.errors.UnavailableError, tf.errors.AbortedError)):
        return ""
    how = f"{format_members(lost)} was lost" if lost else "a parameter server was restarted"
    return f"{how}, and its variables were lost\n  {first_line(error)}"
