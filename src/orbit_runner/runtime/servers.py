"""Servers that lend this machine to others: devices for a chief, input pipelines for workers."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from orbit_runner.errors import RunnerError, first_line
from orbit_runner.runtime.cluster.addresses import port_problem
from orbit_runner.runtime.cluster.description import Cluster

Left = Callable[[], "int | None"]

_LOOK_SECONDS = 1.0


def serve_role(cluster: Cluster, *, left: Left) -> int:
    """Lends this process's devices to the chief, or to whoever drives the cluster from outside.

    Args:
        cluster: The cluster, and who this process is.
        left: Returns an exit code once nobody needs the server any more; asked once a second.

    Returns:
        That exit code, or 128 + n for signal n.

    Raises:
        RunnerError: The port is in use, or TensorFlow does not start the server.
    """
    return serve_until(lambda: _start_server(cluster), cluster.me.address, str(cluster.me), left)


def serve_dispatcher(address: str, *, work_dir: str | None = None, left: Left) -> int:
    """Runs the dispatcher of a tf.data service.

    Args:
        address: `host:port` by which others reach it.
        work_dir: A folder in which it keeps what it needs when it is started again.
        left: As in `serve_role`.

    Returns:
        The exit code.

    Raises:
        RunnerError: The port is in use, or TensorFlow does not start the server.
    """

    def start() -> Any:
        from tensorflow.data.experimental.service import DispatcherConfig, DispatchServer

        return DispatchServer(
            DispatcherConfig(
                port=_port(address),
                protocol="grpc",
                work_dir=work_dir,
                fault_tolerant_mode=work_dir is not None,
            )
        )

    return serve_until(start, address, "data dispatcher", left)


def serve_data_worker(address: str, dispatcher: str, *, left: Left) -> int:
    """Runs a worker of a tf.data service.

    Args:
        address: `host:port` by which others reach it.
        dispatcher: `host:port` of the dispatcher.
        left: As in `serve_role`.

    Returns:
        The exit code.

    Raises:
        RunnerError: The port is in use, or TensorFlow does not start the server.
    """

    def start() -> Any:
        from tensorflow.data.experimental.service import WorkerConfig, WorkerServer

        return WorkerServer(
            WorkerConfig(
                dispatcher_address=dispatcher,
                worker_address=address,
                port=_port(address),
                protocol="grpc",
            )
        )

    return serve_until(start, address, "data worker", left)


def serve_until(start: Callable[[], Any], address: str, name: str, left: Left) -> int:
    """Starts a server, says where it is on stdout, and keeps it until it may leave.

    Args:
        start: Starts it, and returns what has to be kept.
        address: Its `host:port`.
        name: What it is.
        left: As in `serve_role`.

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
        server = _started(start, name)
        print(f"{name} serves at {address}", flush=True)
        code = None
        while code is None and not asked.numbers:
            asked.came.wait(_LOOK_SECONDS)
            code = left()
        del server
    if asked.numbers:
        print(f"{name}: {signal.Signals(asked.numbers[0]).name}: leaving", file=sys.stderr)
        return 128 + asked.numbers[0]
    return code or 0


def _started(start: Callable[[], Any], name: str) -> Any:
    import tensorflow as tf

    try:
        return start()
    except tf.errors.OpError as error:
        raise RunnerError(f"{name}: TensorFlow does not start it: {first_line(error)}") from error


def _start_server(cluster: Cluster) -> Any:
    # A parameter server that is lost is then noticed within seconds; has to be set on all members.
    os.environ.setdefault("TF_PSS_ENABLE_COORDINATION_SERVICE", "1")
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
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, asked.receive) for number in numbers}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])
