"""`parameter_server`: servers hold the variables, workers compute, the chief coordinates.

`train/parameter_servers.py` trains and evaluates with them. TensorFlow tells a server neither that
the run ends, nor the chief that a server will: files in the run directory do both.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_runner import exit_codes
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute.cluster.addresses import Liveness, port_problem, probe
from orbit_runner.distribute.cluster.barrier import wait_for_servers
from orbit_runner.distribute.cluster.description import (
    Cluster,
    Jobs,
    Member,
    MemberLost,
    format_members,
    members_of,
)
from orbit_runner.errors import RunnerError, first_line
from orbit_runner.tf_internals import cluster_of
from orbit_runner.utils.files import write_atomically
from orbit_runner.utils.log import phase
from orbit_runner.utils.signals import SignalGuard, show_cursor, signal_name
from orbit_runner.utils.streams import print_message, print_result

if TYPE_CHECKING:
    import tensorflow as tf

_SERVERS = ("worker", "ps")  # the roles that serve
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

    servers = members_of(jobs, _SERVERS)
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


def _lost_message(reason: str) -> str:
    return (
        f"chief: {reason}\n"
        "restart all members with the same flags to resume from the last checkpoint"
    )


def _end_process(reason: str) -> None:
    print_message(f"runner: {_lost_message(reason)}")
    show_cursor()
    os._exit(MemberLost.exit_code)


class Watch:
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


_watches: dict[tf.distribute.Strategy, Watch] = {}


@contextlib.contextmanager
def server_watch_scope(
    strategy: tf.distribute.ParameterServerStrategy, runtime: RuntimeConfig
) -> Iterator[None]:
    """Watches the servers during a `with` block.

    Raises `MemberLost` if a parameter server is lost, or was restarted and has lost its variables.
    A server that hangs counts as lost after `runtime.heartbeat_timeout` seconds without an answer.
    If this thread waits inside TensorFlow for it, the process exits with the exit code of
    `MemberLost`.
    """
    servers = members_of(cluster_of(strategy), _SERVERS)
    lost = False
    watch = _watches[strategy] = Watch(servers, silence=runtime.heartbeat_timeout)
    try:
        yield
    except Exception as error:
        reason = _loss_reason(error, servers)
        lost = bool(reason) or isinstance(error, MemberLost)
        if not reason:
            raise
        raise MemberLost(_lost_message(reason)) from error
    finally:
        del _watches[strategy]
        # Even deleting a variable waits for a server that hangs. So the watch continues after a
        # loss, and then ends the process.
        if not lost:
            watch.stop()


def check_servers(strategy: tf.distribute.Strategy) -> None:
    """Raises `MemberLost` if a server is lost; does nothing outside of `server_watch_scope`."""
    watch = _watches.get(strategy)
    reason = watch.failure_reason() if watch is not None else ""
    if reason:
        raise MemberLost(_lost_message(reason))


def _loss_reason(error: BaseException | None, servers: list[Member]) -> str:
    """Returns which lost parameter server caused an error, and how; "" if none did."""
    import tensorflow as tf

    while error is not None and not isinstance(error, tf.errors.OpError):
        error = None if isinstance(error, MemberLost) else error.__cause__ or error.__context__
    if error is None:
        return ""
    gone = [m for m in servers if m.role == "ps" and probe(m.address) is not Liveness.ALIVE]
    if not gone and not isinstance(error, (tf.errors.UnavailableError, tf.errors.AbortedError)):
        return ""
    how = f"{format_members(gone)} was lost" if gone else "a parameter server was restarted"
    return f"{how}, and its variables were lost\n  {first_line(error)}"


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
