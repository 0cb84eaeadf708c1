"""A process that the launcher started, and that ends when the launcher ends."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from orbit_runner.distribute.cluster.heartbeat import HeartbeatReader
from orbit_runner.errors import RunnerError
from orbit_runner.launch.exit_status import Ending
from orbit_runner.launch.log_multiplexer import LogMultiplexer, is_chatter, start_log_reader
from orbit_runner.launch.roles import RoleTraits

_LAST_WORDS_SECONDS, _PAUSE_SECONDS = 2.0, 0.05
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spec:
    """How to start a process."""

    name: str  # shown before its lines
    traits: RoleTraits
    command: tuple[str, ...]
    environ: Mapping[str, str]  # complete environment
    log: Path  # file for its output
    results: bool = False  # whether its stdout goes to the launcher's stdout
    stall_timeout: float = 0.0  # the longest time of a training step in seconds; 0 for no limit


class Process:
    """A process in a separate session, so that Ctrl-C in a terminal reaches only the launcher.

    Must be created in the main thread: on Linux, the process is killed when the thread that created
    it ends. Raises `RunnerError` if the program or the log file cannot be opened. `has_output` is
    set when the process writes its first line to stdout; servers do so when they are ready.
    """

    def __init__(self, spec: Spec, output: LogMultiplexer) -> None:
        self.spec, self.has_output = spec, threading.Event()
        self._heartbeat: HeartbeatReader | None = None
        try:
            spec.log.parent.mkdir(parents=True, exist_ok=True)
            spec.log.touch()
            if spec.traits.leads:
                self._heartbeat = HeartbeatReader(spec.stall_timeout, spec.log)
            self._child = subprocess.Popen(
                spec.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**spec.environ, **(self._heartbeat.environ() if self._heartbeat else {})},
                pass_fds=(self._heartbeat.write_end,) if self._heartbeat else (),
                start_new_session=True,
                preexec_fn=parent_death_hook(os.getpid()),
            )
        except OSError as error:
            raise RunnerError(f"cannot start {spec.name}: {error}") from error
        if self._heartbeat:
            self._heartbeat.close_write_end()
        self._readers = self._start_readers(output)

    def _start_readers(self, output: LogMultiplexer) -> list[tuple[IO[bytes], threading.Thread]]:
        def show_stderr(text: bytes) -> None:
            if not is_chatter(text):
                output.write_line(self.spec.name, text)

        def show_stdout(text: bytes) -> None:
            self.has_output.set()
            if self.spec.results:
                output.write_result(text)
            else:
                show_stderr(text)

        output.add_name(self.spec.name)
        assert self._child.stdout is not None
        assert self._child.stderr is not None
        log = self.spec.log
        shows = {self._child.stdout: show_stdout, self._child.stderr: show_stderr}
        return [(stream, start_log_reader(stream, log, show)) for stream, show in shows.items()]

    @property
    def pid(self) -> int:
        """The process ID."""
        return self._child.pid

    def ending(self) -> Ending | None:
        """Returns how the process ended, after showing its last output; None while it runs."""
        if self._child.returncode is None:
            if not self._has_ended():
                return None
            # Its children are killed, too. It remains a zombie until its status is read, so its ID
            # cannot belong to another process yet.
            self._kill_group()
            self._child.wait()
            for stream, reader in self._readers:
                _join_reader(stream, reader)
            if self._heartbeat:
                self._heartbeat.close()
        return Ending(self.spec.name, self._child.returncode)

    def _has_ended(self) -> bool:
        if not hasattr(os, "waitid"):
            return self._child.poll() is not None
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.pid, flags) is not None

    @property
    def last_step(self) -> int:
        """The last training step that the process has reported, -1 if there is none."""
        return self._heartbeat.last_step if self._heartbeat else -1

    def stalled_step(self) -> int | None:
        """Returns the last finished step if the process trains, but takes too long for the next."""
        return self._heartbeat.stalled_step() if self._heartbeat else None

    def is_stopped(self) -> bool:
        """Returns whether the process was stopped (SIGSTOP) and so cannot exit."""
        if not hasattr(os, "waitid") or self._child.returncode is not None:
            return False
        flags = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.pid, flags) is not None

    def send_signal(self, number: int) -> None:
        """Sends a signal to the process, but not to its children."""
        if self._child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kills the process and its children, even if it is stopped."""
        if self._child.returncode is None:
            self._kill_group()
            self.send_signal(signal.SIGKILL)

    def _kill_group(self) -> None:
        if hasattr(os, "killpg"):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)


def _join_reader(stream: IO[bytes], reader: threading.Thread) -> None:
    """Waits until a stream is read, unless another process keeps it open and writes nothing."""
    silence = 0.0
    while reader.is_alive() and silence < _LAST_WORDS_SECONDS:
        reader.join(_PAUSE_SECONDS)
        with contextlib.suppress(ValueError):  # The stream is closed, so the reader ends.
            readable, _, _ = select.select([stream], [], [], 0.0)
            silence = 0.0 if readable else silence + _PAUSE_SECONDS


def parent_death_hook(parent: int) -> Callable[[], None] | None:
    """Returns a `preexec_fn` that ends the child with the launcher, or None if not on Linux.

    On Linux, the function makes the kernel kill the child when the launcher dies, for whatever
    reason. On other systems, the child of a killed launcher ends when it next writes to a pipe,
    which is closed.
    """
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # The launcher died before this call.
            os._exit(1)

    return prepare
