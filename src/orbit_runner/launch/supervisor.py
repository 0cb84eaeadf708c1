"""Starts the members of a cluster, ends all if one of them ends, and starts them again.

Their output has the name of the process before each line. They end when the launcher ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import IO, NamedTuple

from orbit_runner import exit_codes
from orbit_runner.errors import RunnerError
from orbit_runner.utils.signals import SignalGuard, describe_exit, signal_name

_LAST_WORDS_SECONDS = 10.0
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LONGEST_LINE = 1 << 16
_PAUSE_SECONDS = 0.1
_KILL_SECONDS = 10.0
_STOPPED = [*map(exit_codes.after_signal, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spec:
    """How to start a process."""

    name: str  # shown before its lines
    serves: bool  # runs until the launcher ends it
    command: tuple[str, ...]
    environ: Mapping[str, str]  # complete environment
    results: bool = False  # whether its stdout goes to the launcher's stdout


class Output:
    """Shows the output of several processes, without mixing lines.

    Everything goes to `err`, the launcher's stderr, prefixed with the name of the process, except
    the stdout of the process that prints the results. That goes to `out`, the launcher's stdout,
    unchanged, so that a pipe reads what it would read from `runner run`.
    """

    def __init__(self, out: IO[bytes], err: IO[bytes]) -> None:
        self._out = out
        self._err = err
        self._lock = threading.Lock()

    def note(self, text: str) -> None:
        """Shows a message of the launcher itself."""
        self.write_line("launcher", text.encode())

    def write_line(self, name: str, text: bytes) -> None:
        """Shows a line of a process."""
        self._write(self._err, f"{name:<8} │ ".encode() + text.rstrip(b"\r\n") + b"\n")

    def write_result(self, text: bytes) -> None:
        """Writes a line of the results unchanged."""
        self._write(self._out, text)

    def _write(self, file: IO[bytes], text: bytes) -> None:
        # The reader of a pipe may have exited (`runner launch … | head -1`). That must not stop the
        # members, which would block if their own pipes were not read any more.
        with self._lock, contextlib.suppress(OSError, ValueError):
            file.write(text)
            file.flush()


class Process:
    """A process in a separate session, so that Ctrl-C in a terminal reaches only the launcher.

    Must be created in the main thread: on Linux, the process is killed when the thread that created
    it ends. Raises `RunnerError` if the program cannot be started.
    """

    def __init__(self, spec: Spec, output: Output) -> None:
        self.spec = spec
        try:
            self._child = subprocess.Popen(
                spec.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=spec.environ,
                start_new_session=True,
                preexec_fn=parent_death_hook(os.getpid()),
            )
        except OSError as error:
            raise RunnerError(f"cannot start {spec.name}: {error}", code="server-failed") from error
        show = functools.partial(output.write_line, spec.name)
        self._readers = [
            _start_reader(self._child.stdout, output.write_result if spec.results else show),
            _start_reader(self._child.stderr, show),
        ]

    def status(self) -> int | None:
        """Returns the exit code, or minus the signal that killed it; None while it runs."""
        if self._child.returncode is None:
            flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
            if os.waitid(os.P_PID, self._child.pid, flags) is None:
                return None
            # Its children are killed, too. It remains a zombie until its status is read, so its ID
            # cannot belong to another process yet.
            self.kill()
            self._child.wait()
            for reader in self._readers:
                reader.join(_LAST_WORDS_SECONDS)
        return self._child.returncode

    def send_signal(self, number: int) -> None:
        """Sends a signal to the process, but not to its children."""
        # Not `send_signal` of the child, which would read its status.
        if self._child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child.pid, number)

    def kill(self) -> None:
        """Kills the process and its children, even if it is stopped."""
        if self._child.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child.pid, signal.SIGKILL)


def _start_reader(stream: IO[bytes] | None, show: Callable[[bytes], None]) -> threading.Thread:
    """Starts a thread that passes each line of a stream to `show`, and ends with the stream."""
    assert stream is not None

    def pass_lines() -> None:
        with stream:
            while text := stream.readline(_LONGEST_LINE):
                show(text)

    thread = threading.Thread(target=pass_lines, daemon=True)
    thread.start()
    return thread


def parent_death_hook(parent: int) -> Callable[[], None] | None:
    """Returns a `preexec_fn` that ends the child with the launcher, or None if not on Linux.

    On other systems, the child of a killed launcher ends when it next writes to its closed pipe.
    """
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # The launcher died before this call.
            os._exit(1)

    return prepare


class Limits(NamedTuple):
    """Limits of restarts and waiting times."""

    restarts: int = 3  # how often all members are started again after one is lost
    grace: float = 30.0  # seconds for members to save and exit
    settle: float = 5.0  # seconds for the other members to end after one has failed


class _Ending(NamedTuple):
    """How a process ended. The smallest of several explains the others."""

    # TensorFlow may crash, and members report a loss, because another member failed.
    rank: int  # 0: killed by SIGKILL; 1: failed; 2: crashed, or reports a loss
    code: int  # as a shell reports it
    text: str


def supervise(
    make_specs: Callable[[], Sequence[Spec]], output: Output, signals: SignalGuard, limits: Limits
) -> int:
    """Runs a cluster until training is done, and again if a member is lost. Returns the exit code.

    `make_specs` returns the processes of an attempt. The exit code is that of the process that
    failed first, 128 + n for signal n, or 0.
    """
    attempt = 1
    while True:
        processes: list[Process] = []
        try:
            for spec in make_specs():
                processes.append(Process(spec, output))
            ending = _wait_for_end(processes, output, signals, limits)
        finally:
            _kill(processes)
        if ending is None:
            return 0
        if signals.received is not None:
            return ending.code
        if ending.rank == 1 or attempt > limits.restarts:
            output.note(f"{ending.text}; all members have ended")
            return ending.code
        restart = f"{attempt} of {limits.restarts}"
        output.note(f"{ending.text}; restarting all members from the last checkpoint ({restart})")
        attempt += 1


def _wait_for_end(
    processes: Sequence[Process], output: Output, signals: SignalGuard, limits: Limits
) -> _Ending | None:
    """Waits until training ends, and forwards a signal. Returns what ended it; None if it is done.

    After a failure or a signal, members have some seconds to end. Servers, which the launcher ends,
    do not get the signal, because their clients need them to save.
    """
    clients = [process for process in processes if not process.spec.serves]
    end = math.inf
    is_forwarded = False
    while _running(clients) and not signals.should_kill and time.monotonic() < end:
        if signals.received is not None and not is_forwarded:
            output.note(
                f"{signal_name(signals.received)}: waiting up to {limits.grace:.0f} s for "
                f"{_names(_running(clients))} to save and exit; press Ctrl-C to kill them now"
            )
            for process in clients:
                process.send_signal(signals.forwarded_signal)
            is_forwarded = True
            end = time.monotonic() + limits.grace
        elif end == math.inf and (endings := _endings(processes)):
            first = min(endings)
            seconds = limits.settle if first.rank > 0 else 0.0
            if first.code in _STOPPED:  # A member was asked to exit, so the others save, too.
                seconds = limits.grace
                for process in clients:
                    process.send_signal(signal.SIGTERM)
            end = time.monotonic() + seconds
        time.sleep(_PAUSE_SECONDS)
    number = signals.received
    if number is not None and (late := _running(clients)):
        output.note(f"killed without saving: {_names(late)}")
    if all(process.status() == 0 for process in clients):
        return None
    if number is None:
        return min(_endings(processes))
    failed = (e for e in _endings(clients) if e.rank == 1 and e.code not in _STOPPED)
    return next(failed, _Ending(1, exit_codes.after_signal(number), signal_name(number)))


def _running(processes: Iterable[Process]) -> list[Process]:
    return [process for process in processes if process.status() is None]


def _endings(processes: Iterable[Process]) -> list[_Ending]:
    """Returns how processes ended, without those that are done."""
    endings = []
    for process in processes:
        if status := process.status():
            code = status if status > 0 else 128 - status
            # A server that exits on request is lost to its clients.
            if process.spec.serves and code in _STOPPED:
                code = exit_codes.MEMBER_LOST
            is_lost = code == exit_codes.MEMBER_LOST or (status < 0 and code not in _STOPPED)
            rank = 0 if status == -signal.SIGKILL else 2 if is_lost else 1
            endings.append(_Ending(rank, code, f"{process.spec.name} {describe_exit(status)}"))
    return endings


def _names(processes: Iterable[Process]) -> str:
    return ", ".join(process.spec.name for process in processes)


def _kill(processes: Sequence[Process]) -> None:
    for process in processes:
        process.kill()
    # SIGKILL cannot be ignored, but a process in a system call on a failed disk may survive it.
    end = time.monotonic() + _KILL_SECONDS
    while _running(processes) and time.monotonic() < end:
        time.sleep(_PAUSE_SECONDS)
