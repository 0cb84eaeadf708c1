"""`parameter_server`: servers hold the variables, workers compute, the chief coordinates.

`train/parameter_servers.py` trains and evaluates with them, and `failure_detection.py` watches the
servers. TensorFlow tells a server neither that the run ends, nor the chief that a server will:
files in the run directory do both.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_runner import exit_codes
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute.cluster.addresses import port_problem
from orbit_runner.distribute.cluster.barrier import wait_for_servers
from orbit_runner.distribute.cluster.description import (
    Cluster,
    Jobs,
    Member,
    format_members,
    members_of,
)
from orbit_runner.errors import RunnerError, first_line
from orbit_runner.utils.files import write_atomically
from orbit_runner.utils.log import phase
from orbit_runner.utils.signals import SignalGuard, signal_name
from orbit_runner.utils.streams import print_message, print_result

if TYPE_CHECKING:
    import tensorflow as tf

SERVERS = ("worker", "ps")  # the roles that serve
_POLL_SECONDS = 0.5
_PATIENCE_SECONDS = 60.0


def build_parameter_server(
    runtime: RuntimeConfig, jobs: Jobs
) -> tf.distribute.ParameterServerStrategy:
    """Waits for the servers and returns the strategy over them.

    `jobs` contains the workers, the parameter servers and, unless this process drives the cluster
    from outside, this process as the chief. Raises `MemberLost` if a server does not start in time,
    and `RunnerError` if TensorFlow cannot use the servers.
    """
    import tensorflow as tf

    servers = members_of(jobs, SERVERS)
    # TensorFlow itself waits five minutes for a missing server, without a message.
    wait_for_servers(servers, timeout=runtime.cluster_start_timeout, tell=phase)
    # Without the evaluator, which runs no server: TensorFlow would wait for it.
    spec = {role: list(jobs[role]) for role in ("chief", "worker", "ps") if jobs.get(role)}
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(spec),
        task_type="chief" if "chief" in spec else None,
        task_id=0,
        rpc_layer="grpc",
    )
    try:
        strategy = tf.distribute.ParameterServerStrategy(resolver)
    except (tf.errors.OpError, RuntimeError, ValueError) as error:
        raise RunnerError(
            f"TensorFlow cannot use the servers {format_members(servers)}: {first_line(error)}",
            code="server-failed",
        ) from error
    replicas = strategy.num_replicas_in_sync
    if replicas != 1:
        raise RunnerError(
            f"each worker has {replicas} visible GPUs, but a step runs on one\n"
            "start one worker per GPU, and set CUDA_VISIBLE_DEVICES to that GPU",
            code="not-supported",
        )
    return strategy


def serve_role(cluster: Cluster, run: RunEnd | None = None) -> int:
    """Runs a server for the chief, or for a process that drives the cluster from outside.

    Prints its address to stdout when it is ready. Returns an exit code, which is 128 + n for signal
    n. The server ends with `run`. After a signal to exit, it keeps running until the chief has
    saved and exited, but at most for one minute. If `run` is None, it runs until a signal, and then
    exits. Raises `RunnerError` if the port is in use or TensorFlow cannot start the server.
    """
    address, name = cluster.me.address, str(cluster.me)
    problem = port_problem(address)
    if problem:
        # TensorFlow would report this among many lines of its own, or abort.
        raise RunnerError(f"{name}: {problem}", code="server-failed")
    signals = SignalGuard()
    with signals.installed_scope():
        print_message(f"{name}: starting at {address} …")
        server = _start_server(cluster)
        print_result(f"{name} serves at {address}")
        code = None
        while code is None and not signals.received:
            time.sleep(_POLL_SECONDS)
            code = run.exit_code() if run is not None else None
        if code is None and run is not None:
            run.tell_chief()
            print_message(f"{name}: waiting for the chief to save and exit")
            end = time.monotonic() + _PATIENCE_SECONDS
            while code is None and not signals.should_kill and time.monotonic() < end:
                time.sleep(_POLL_SECONDS)
                code = run.exit_code()
        del server
    if code is None and signals.received:
        print_message(f"{name}: {signal_name(signals.received)}: exiting")
        return exit_codes.after_signal(signals.received)
    return code or 0


def _start_server(cluster: Cluster) -> object:
    import tensorflow as tf

    # An evaluator only reads checkpoints, and is not part of the cluster that TensorFlow starts.
    jobs = {
        role: list(addresses) for role, addresses in cluster.jobs.items() if role != "evaluator"
    }
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


class RunEnd:
    """Files in the run directory by which a chief (`me` is None) and its servers tell their end."""

    def __init__(self, model_dir: Path, me: Member | None = None) -> None:
        self._folder = model_dir / ".cluster"
        self._ended = self._folder / "ended.json"
        if me is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._leaving = self._folder / f"leaving-{me.role}-{me.index}.json"
            self._leaving.unlink(missing_ok=True)
        self._old = _stamp(self._ended)  # Written by an earlier run.

    def begin(self) -> None:
        """Removes the files of an earlier run."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for note in (self._ended, *self._folder.glob("leaving-*.json")):
            note.unlink(missing_ok=True)

    def leaving_members(self) -> list[str]:
        """Returns the members that are about to exit, such as `worker 1`."""
        notes = sorted(self._folder.glob("leaving-*.json"))
        return [" ".join(note.stem.split("-")[1:]) for note in notes]

    def tell_servers(self, code: int) -> None:
        """Tells the servers the exit code of the run, unless the chief will be started again."""
        _write(self._ended, code)

    def tell_chief(self) -> None:
        """Tells the chief that this server is about to exit."""
        _write(self._leaving, os.getpid())

    def exit_code(self) -> int | None:
        """Returns the exit code that the run ended with; None while it is running."""
        stamp = _stamp(self._ended)
        if stamp is None or stamp == self._old:
            return None
        try:
            return int(self._ended.read_text(encoding="utf-8"))
        except OSError:
            return None  # Another run has just started and removed it.


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino


def _write(path: Path, number: int) -> None:
    if path.parent.is_dir():  # Otherwise, the run directory was removed.
        write_atomically(path, f"{number}\n")
