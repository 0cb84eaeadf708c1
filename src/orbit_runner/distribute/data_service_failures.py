"""Detects lost tf.data services while a run waits for their batches.

TensorFlow waits forever for the batches of a lost service. A service that was restarted does not
know earlier requests, so the run has to be restarted as well.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator

import tensorflow as tf

from orbit_runner.distribute.cluster.addresses import split_address
from orbit_runner.distribute.cluster.description import MemberLost
from orbit_runner.distribute.cluster.liveness import Liveness, check_liveness
from orbit_runner.errors import RunnerError, format_choices
from orbit_runner.tf_internals import CancellationManager, CancellationManagerContext
from orbit_runner.utils.terminal import show_cursor

_PAUSE_SECONDS = 1.0
_PROBE_SECONDS = 1.0
_ADVICE = (
    "restart the data service, then restart this run with the same flags to resume from the last "
    "checkpoint"
)
_UNKNOWN_CLIENT = re.compile(r"iteration client id|dispatcher|data service", re.I)


@contextlib.contextmanager
def data_service_watch_scope(
    strategy: tf.distribute.Strategy, services: Iterable[str], silence: float
) -> Iterator[None]:
    """Raises `MemberLost` if a data service is lost, or restarted, during a `with` block.

    TensorFlow functions in the block are canceled. If that does not help, because the block waits
    for something else inside TensorFlow, the process exits `silence` seconds later. Each service is
    a `host:port`, and counts as lost after `silence` seconds without an answer.
    """
    watch = _Watch([*services], silence)
    if not watch.services:
        yield
        return
    try:
        # The coordinator of parameter servers cancels functions itself, and waits in Python.
        is_parameter_server = isinstance(strategy, tf.distribute.ParameterServerStrategy)
        with watch, contextlib.nullcontext() if is_parameter_server else watch.cancellation_scope():
            yield
    except Exception as error:
        reason = "" if _is_known(error) else watch.reason or _find_reason(error, watch.services)
        if not reason:
            raise
        raise _keep_alive(MemberLost(f"{reason}\n{_ADVICE}")) from error


def _keep_alive(error: MemberLost) -> MemberLost:
    """Keeps an error alive forever, and with it the iterators that its traceback references.

    Some of them wait for the service. Deleting them would wait as well, even when the process
    exits, so a reference in Python is not enough.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(error))
    return error


def _is_known(error: Exception) -> bool:
    """Returns whether an error certainly has another cause, so that it is raised unchanged."""
    return isinstance(error, RunnerError) and error.exit_code not in (1, MemberLost.exit_code)


def _find_reason(error: Exception, services: list[str]) -> str:
    """Returns which lost service explains an error raised before the loss was noticed, or ""."""
    if not isinstance(error, (tf.errors.OpError, MemberLost)):
        return ""
    for service in services:
        liveness = check_liveness(service, _PROBE_SECONDS)
        if liveness is not Liveness.ALIVE:
            return _lost_message(service, liveness)
    if isinstance(error, tf.errors.NotFoundError) and _UNKNOWN_CLIENT.search(str(error)):
        named = format_choices(f"grpc://{service}" for service in services)
        return f"a data service was lost: {named} was restarted during the run"
    return ""


def _lost_message(service: str, liveness: Liveness) -> str:
    return f"the data service grpc://{service} was lost: {liveness.value}"


class _Watch:
    """Checks each service once a second, in a separate thread."""

    def __init__(self, services: list[str], silence: float) -> None:
        self.services = services
        self.reason = ""
        self._silence = silence
        self._manager = CancellationManager()
        self._stop = threading.Event()
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        for service in self.services:
            threading.Thread(target=self._poll, args=(service,), daemon=True).start()

    def __exit__(self, *error: object) -> None:
        self._stop.set()

    def cancellation_scope(self) -> contextlib.AbstractContextManager[None]:
        """Returns a context in which function calls are canceled when a service is lost."""
        scope: contextlib.AbstractContextManager[None] = CancellationManagerContext(self._manager)
        return scope

    def _poll(self, service: str) -> None:
        since = None
        while not self._stop.wait(_PAUSE_SECONDS):
            begun = time.monotonic()
            liveness = check_liveness(service, self._silence)
            if liveness is Liveness.ALIVE:
                since = None
                continue
            since = since or begun
            # A refused connection is final; other connection errors may be temporary.
            if time.monotonic() - since >= self._silence or _is_refused(service):
                self._report_loss(_lost_message(service, liveness))
                return

    def _report_loss(self, reason: str) -> None:
        with self._lock:
            if self.reason or self._stop.is_set():
                return
            self.reason = reason
        self._manager.start_cancel()
        if not self._stop.wait(self._silence):
            _end_process(reason)


def _is_refused(service: str) -> bool:
    try:
        socket.create_connection(split_address(service), _PROBE_SECONDS).close()
    except OSError as error:
        return isinstance(error, ConnectionRefusedError)
    return False


def _end_process(reason: str) -> None:
    print(f"runner: {reason}\n{_ADVICE}", file=sys.stderr, flush=True)
    show_cursor()
    os._exit(MemberLost.exit_code)
