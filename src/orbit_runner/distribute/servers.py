"""Servers of a cluster, whose devices a chief uses."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

from orbit_runner.distribute.cluster.addresses import port_problem
from orbit_runner.distribute.cluster.description import Cluster
from orbit_runner.errors import RunnerError, first_line
from orbit_runner.utils.signals import exit_signals

RunExitCode = Callable[[], "int | None"]

_POLL_SECONDS = 1.0
_PATIENCE_SECONDS = 60.0


def serve_role(
    cluster: Cluster, *, run_exit_code: RunExitCode, announce: Callable[[], None] | None = None
) -> int:
    """Runs a server for the chief, or for a process that drives the cluster from outside.

    Prints its address to stdout when it is ready. Returns an exit code, which is 128 + n for signal
    n. `run_exit_code` is called once a second; it returns None while the server is needed, and then
    an exit code. `announce` tells the chief that this server has received a signal to exit. The
    server then keeps running until the chief has saved and exited, but at most for one minute. If
    `announce` is None, the server exits immediately. Raises `RunnerError` if the port is in use or
    TensorFlow cannot start the server.
    """
    address, name = cluster.me.address, str(cluster.me)
    problem = port_problem(address)
    if problem:
        # TensorFlow would report this among many lines of its own, or abort.
        raise RunnerError(f"{name}: {problem}", code="server-failed")
    with _signal_scope() as received:
        print(f"{name}: starting at {address} …", file=sys.stderr, flush=True)
        server = _start_server(cluster)
        print(f"{name} serves at {address}", flush=True)
        code = None
        while code is None and not received.numbers:
            received.arrived.wait(_POLL_SECONDS)
            code = run_exit_code()
        if code is None and announce is not None:
            announce()
            print(f"{name}: waiting for the chief to save and exit", file=sys.stderr, flush=True)
            code = _wait_for_exit_code(run_exit_code, received)
        del server
    if code is None:
        print(f"{name}: {signal.Signals(received.numbers[0]).name}: exiting", file=sys.stderr)
        return 128 + received.numbers[0]
    return code or 0


def _wait_for_exit_code(run_exit_code: RunExitCode, received: _ReceivedSignals) -> int | None:
    end = time.monotonic() + _PATIENCE_SECONDS
    while (
        (code := run_exit_code()) is None and len(received.numbers) < 2 and time.monotonic() < end
    ):
        time.sleep(_POLL_SECONDS / 5)
    return code


def _start_server(cluster: Cluster) -> object:
    import tensorflow as tf

    # An evaluator only reads checkpoints, and is not part of the cluster that TensorFlow starts.
    jobs = {role: list(there) for role, there in cluster.jobs.items() if role != "evaluator"}
    try:
        return tf.distribute.Server(
            tf.train.ClusterSpec(jobs),
            job_name=cluster.me.role,
            task_index=cluster.me.index,
            protocol="grpc",
        )
    except tf.errors.OpError as error:
        raise RunnerError(
            f"{cluster.me}: TensorFlow cannot start the server: {first_line(error)}",
            code="server-failed",
        ) from error


class _ReceivedSignals:
    def __init__(self) -> None:
        self.arrived = threading.Event()
        self.numbers = list[int]()

    def receive(self, number: int, frame: FrameType | None) -> None:
        self.numbers.append(number)
        self.arrived.set()


@contextlib.contextmanager
def _signal_scope() -> Iterator[_ReceivedSignals]:
    received = _ReceivedSignals()
    if threading.current_thread() is not threading.main_thread():
        yield received  # Python delivers signals to the main thread only.
        return
    before = {number: signal.signal(number, received.receive) for number in exit_signals()}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
