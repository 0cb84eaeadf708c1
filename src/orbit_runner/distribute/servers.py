"""Servers for other processes: devices for a chief, and tf.data services."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from orbit_runner.distribute.cluster.addresses import port_problem
from orbit_runner.distribute.cluster.description import Cluster
from orbit_runner.errors import RunnerError, first_line
from orbit_runner.utils.signals import leave_signals

Left = Callable[[], "int | None"]

_LOOK_SECONDS, _PATIENCE_SECONDS = 1.0, 60.0
# Data services, kept until the process ends: deleting one waits for its pipelines, sometimes for
# as long as they have run, and until then it still appears to be running.
_KEPT: list[Any] = []


def serve_role(cluster: Cluster, *, left: Left, announce: Callable[[], None] | None = None) -> int:
    """Runs a server for the chief, or for a process that drives the cluster from outside.

    Returns an exit code, which is 128 + n for signal n. `left` is called once a second, and returns
    an exit code once the server is not needed anymore. `announce` tells the chief that this server
    has received a signal to exit. The server then keeps running until the chief has saved and
    exited, but at most for one minute. If `announce` is None, the server exits immediately. Raises
    `RunnerError` if the port is in use or TensorFlow cannot start the server.
    """
    return serve_until(
        lambda: _start_server(cluster), cluster.me.address, str(cluster.me), left, announce
    )


def serve_data(address: str, *, left: Left) -> int:
    """Runs a tf.data service, a dispatcher and a single worker, and returns the exit code.

    `address` is the `host:port` at which other processes reach the dispatcher. They reach the
    worker at the same host, at a port that the system chooses. `left` is as in `serve_role`. Raises
    `RunnerError` if the port is in use or TensorFlow cannot start the server.
    """

    def start() -> Any:
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

    return serve_until(start, address, "data", left)


def serve_until(
    start: Callable[[], Any],
    address: str,
    name: str,
    left: Left,
    announce: Callable[[], None] | None = None,
) -> int:
    """Starts a server, prints its address to stdout, and runs it; returns the exit code.

    `start` starts the server and returns the objects that have to be kept alive. `left` and
    `announce` are as in `serve_role`. Raises `RunnerError` if the port is in use or TensorFlow
    cannot start the server.
    """
    problem = port_problem(address)
    if problem:
        # TensorFlow would report this among many lines of its own, or abort.
        raise RunnerError(f"{name}: {problem}")
    with _signals() as asked:
        print(f"{name}: starting at {address} …", file=sys.stderr, flush=True)
        server = _start(start, name)
        print(f"{name} serves at {address}", flush=True)
        code = None
        while code is None and not asked.numbers:
            asked.came.wait(_LOOK_SECONDS)
            code = left()
        if code is None and announce is not None:
            announce()
            print(f"{name}: waiting for the chief to save and exit", file=sys.stderr, flush=True)
            code = _last_word(left, asked)
        del server
    if code is None:
        print(f"{name}: {signal.Signals(asked.numbers[0]).name}: exiting", file=sys.stderr)
        return 128 + asked.numbers[0]
    return code or 0


def _last_word(left: Left, asked: _Asked) -> int | None:
    end = time.monotonic() + _PATIENCE_SECONDS
    while (code := left()) is None and len(asked.numbers) < 2 and time.monotonic() < end:
        time.sleep(_LOOK_SECONDS / 5)
    return code


def _start(start: Callable[[], Any], name: str) -> Any:
    import tensorflow as tf

    try:
        return start()
    except tf.errors.OpError as error:
        raise RunnerError(
            f"{name}: TensorFlow cannot start the server: {first_line(error)}"
        ) from error


def _start_server(cluster: Cluster) -> Any:
    import tensorflow as tf

    # An evaluator only reads checkpoints, and is not part of the cluster that TensorFlow starts.
    jobs = {role: list(there) for role, there in cluster.jobs.items() if role != "evaluator"}
    return tf.distribute.Server(
        tf.train.ClusterSpec(jobs),
        job_name=cluster.me.role,
        task_index=cluster.me.index,
        protocol="grpc",
    )


class _Asked:
    def __init__(self) -> None:
        self.came, self.numbers = threading.Event(), list[int]()

    def receive(self, number: int, frame: FrameType | None) -> None:
        self.numbers.append(number)
        self.came.set()


@contextlib.contextmanager
def _signals() -> Iterator[_Asked]:
    asked = _Asked()
    if threading.current_thread() is not threading.main_thread():
        yield asked  # Python delivers signals to the main thread only.
        return
    before = {number: signal.signal(number, asked.receive) for number in leave_signals()}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
