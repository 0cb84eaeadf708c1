"""Turns the errors of TensorFlow about a lost worker into clear messages.

TensorFlow notices lost workers of `multi_worker_mirrored`. The chief of parameter servers watches
its members itself (`parameter_servers.Watch`), as `runner launch` does (`launch/supervisor.py`).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import tensorflow as tf

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute.cluster.description import (
    Member,
    MemberLost,
    format_members,
    members_of,
)
from orbit_runner.distribute.parameter_servers import server_watch_scope
from orbit_runner.distribute.process_group import is_asynchronous
from orbit_runner.errors import cut_at_word, first_line

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
        with server_watch_scope(strategy, runtime):
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
        raise MemberLost(
            f"{resolver.task_type} {resolver.task_id}: {_describe_lost(cause, others)} was lost\n"
            f"  {reason}\n"
            "restart all workers with the same flags to resume from the last checkpoint"
        ) from error


def _other_workers(strategy: tf.distribute.Strategy) -> list[Member]:
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return []
    resolver = strategy.cluster_resolver
    me = Member(resolver.task_type, resolver.task_id)
    return [m for m in members_of(resolver.cluster_spec().as_dict()) if m != me]


def _describe_lost(error: Exception, others: list[Member]) -> str:
    """Returns the workers that the error names, or else all others, of which one was lost."""
    named = {Member(role, int(index)) for role, index in _TASK.findall(str(error))}
    lost = [member for member in others if member in named] or others
    return f"{'one of ' if len(lost) > 1 else ''}{format_members(lost)}"
