"""Servers that lend this machine to others: devices for a chief, input pipelines for workers."""

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
# Data services to the end of the process: taking one apart waits for its pipelines, now and then
# for as long as they have run, and meanwhile it looks to others as if it were there.
_KEPT: list[Any] = []


def serve_role(cluster: Cluster, *, left: Left, announce: Callable[[], None] | None = None) -> int:
    """Lends this process's devices to the chief, or to whoever drives the cluster from outside.

    Args:
        cluster: The cluster, and who this process is.
        left: Returns an exit code once nobody needs the server any more; asked once a second.
        announce: Tells the chief that this server was asked to go. It then stays until the chief
            has saved and left, a minute at most; where None, it goes at once.

    Returns:
        That exit code, or 128 + n for signal n.

    Raises:
        RunnerError: The port is in use, or TensorFlow does not start the server.
    """
    return serve_until(
        lambda: _start_server(cluster), cluster.me.address, str(cluster.me), left, announce
    )


def serve_data(address: str, *, left: Left) -> int:
    """Runs a tf.data service: a dispatcher, and the one worker that makes its batches.

    Args:
        address: `host:port` by which others reach it. They reach the worker by the same host, at a
            port that the system chooses.
        left: As in `serve_role`.

    Returns:
        The exit code.

    Raises:
        RunnerError: The port is in use, or TensorFlow does not start the server.
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
    """Starts a server, says where it is on stdout, and keeps it until it may leave.

    Args:
        start: Starts it, and returns what has to be kept.
        address: Its `host:port`.
        name: What it is.
        left: As in `serve_role`.
        announce: As in `serve_role`.

    Returns:
        The exit code.

    Raises:
        RunnerError: The port is in use, or TensorFlow does not start the server.
    """
    problem = port_problem(address)
    if problem:
        # TensorFlow says so among ten lines of its own, or aborts.
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
            print(f"{name}: waiting for the chief to save and leave", file=sys.stderr, flush=True)
            code = _last_word(left, asked)
        del server
    if code is None:
        print(f"{name}: {signal.Signals(asked.numbers[0]).name}: leaving", file=sys.stderr)
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
        raise RunnerError(f"{name}: TensorFlow does not start it: {first_line(error)}") from error


def _start_server(cluster: Cluster) -> Any:
    import tensorflow as tf

    # An evaluator reads checkpoints: it is in the description only to know itself.
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
