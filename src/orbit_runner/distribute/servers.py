"""Servers for other processes: devices for a chief, and tf.data services."""

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
# Data services, kept until the process ends: deleting one waits for its pipelines, sometimes for
# as long as they have run, and until then it still appears to be running.
_KEPT: list[object] = []


def serve_role(
    cluster: Cluster, *, run_exit_code: RunExitCode, announce: Callable[[], None] | None = None
) -> int:
    """Runs a server for the chief, or for a process that drives the cluster from outside.

    Returns an exit code, which is 128 + n for signal n. `run_exit_code` is called once a second; it
    returns None while the server is needed, and then an exit code. `announce` tells the chief that
    this server has received a signal to exit. The server then keeps running until the chief has
    saved and exited, but at most for one minute. If `announce` is None, the server exits
    immediately. Raises `RunnerError` if the port is in use or TensorFlow cannot start the server.
    """
    return run_server(
        lambda: _start_server(cluster), cluster.me.address, str(cluster.me), run_exit_code, announce
    )


def serve_data(address: str, *, run_exit_code: RunExitCode) -> int:
    """Runs a tf.data service, a dispatcher and a single worker, and returns the exit code.

    `address` is the `host:port` at which other processes reach the dispatcher. They reach the
    worker at the same host, at a port that the system chooses. `run_exit_code` is as in
    `serve_role`. Raises `RunnerError` if the port is in use or TensorFlow cannot start the server.
    """

    def start() -> object:
        from tensorflow.data.experimental import service

        host, _, port = address.rpartition(":")
        dispatcher = service.DispatchServer(
            service.DispatcherConfig(port=int(port), protocol="grpc")
        )
        worker = service.WorkerServer(
            service.WorkerConfig(
                dispatcher_address=f"localhost:{port}",
                worker_address=f"{host}:%port%",
                protocol="grpc",
            )
        )
        _KEPT.append((dispatcher, worker))
        return _KEPT[-1]

    return run_server(start, address, "data", run_exit_code)


def run_server(
    start: Callable[[], object],
    address: str,
    name: str,
    run_exit_code: RunExitCode,
    announce: Callable[[], None] | None = None,
) -> int:
    """Starts a server, prints its address to stdout, and runs it; returns the exit code.

    `start` starts the server and returns the objects that have to be kept alive. `run_exit_code`
    and `announce` are as in `serve_role`. Raises `RunnerError` if the port is in use or TensorFlow
    cannot start the server.
    """
    problem = port_problem(address)
    if problem:
        # TensorFlow would report this among many lines of its own, or abort.
        raise RunnerError(f"{name}: {problem}", code="server-failed")
    with _signal_scope() as received:
        print(f"{name}: starting at {address} …", file=sys.stderr, flush=True)
        server = _start(start, name)
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


def _start(start: Callable[[], object], name: str) -> object:
    import tensorflow as tf

    try:
        return start()
    except tf.errors.OpError as error:
        raise RunnerError(
            f"{name}: TensorFlow cannot start the server: {first_line(error)}", code="server-failed"
        ) from error


def _start_server(cluster: Cluster) -> object:
    import tensorflow as tf

    # An evaluator only reads checkpoints, and is not part of the cluster that TensorFlow starts.
    jobs = {role: list(there) for role, there in cluster.jobs.items() if role != "evaluator"}
    return tf.distribute.Server(
        tf.train.ClusterSpec(jobs),
        job_name=cluster.me.role,
        task_index=cluster.me.index,
        protocol="grpc",
    )


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
