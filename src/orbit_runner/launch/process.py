"""One process that the launcher started: told, asked, and gone when the launcher is gone."""

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

from orbit_runner.errors import RunnerError
from orbit_runner.launch.exit_status import Ending
from orbit_runner.launch.log_multiplexer import Screen, follow, is_chatter
from orbit_runner.launch.roles import Part

_LAST_WORDS_SECONDS, _PAUSE_SECONDS = 2.0, 0.05
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spec:
    """How to start a process.

    Attributes:
        name: Its name on the screen.
        part: What it does in the job.
        command: Program and arguments.
        environ: Its whole environment.
        log: The file that keeps what it says.
        results: Whether its stdout is that of the launcher.
    """

    name: str
    part: Part
    command: tuple[str, ...]
    environ: Mapping[str, str]
    log: Path
    results: bool = False


class Process:
    """A process in a session of its own, so that a terminal's Ctrl-C reaches only the launcher.

    Attributes:
        spec: How it was started.
        spoke: Set once it has written a line to its stdout; servers do when they are ready.
    """

    def __init__(self, spec: Spec, screen: Screen) -> None:
        """Starts it. To be called in the main thread: on Linux it dies with the calling thread.

        Args:
            spec: How to.
            screen: Where its lines go.

        Raises:
            RunnerError: The program, or its log, cannot be opened.
        """
        self.spec, self.spoke = spec, threading.Event()
        try:
            spec.log.parent.mkdir(parents=True, exist_ok=True)
            spec.log.touch()
            self._child = subprocess.Popen(
                spec.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(spec.environ),
                start_new_session=True,
                preexec_fn=_dies_with(os.getpid()),
            )
        except OSError as error:
            raise RunnerError(f"cannot start {spec.name}: {error}") from error
        self._readers = self._follow(screen)

    def _follow(self, screen: Screen) -> list[tuple[IO[bytes], threading.Thread]]:
        def err(text: bytes) -> None:
            if not is_chatter(text):
                screen.line(self.spec.name, text)

        def out(text: bytes) -> None:
            self.spoke.set()
            if self.spec.results:
                screen.result(text)
            else:
                err(text)

        screen.introduce(self.spec.name)
        assert self._child.stdout is not None
        assert self._child.stderr is not None
        log, shows = self.spec.log, {self._child.stdout: out, self._child.stderr: err}
        return [(stream, follow(stream, log, show)) for stream, show in shows.items()]

    @property
    def pid(self) -> int:
        """Its number."""
        return self._child.pid

    def ending(self) -> Ending | None:
        """Returns how it ended, its last words shown; None while it runs."""
        if self._child.returncode is None:
            if not self._has_ended():
                return None
            # What it started itself goes with it. It is a zombie as long as nobody has asked for
            # its status, so its number cannot belong to anybody else yet.
            self._kill_group()
            self._child.wait()
            for stream, reader in self._readers:
                _join(stream, reader)
        return Ending(self.spec.name, self._child.returncode)

    def _has_ended(self) -> bool:
        if not hasattr(os, "waitid"):
            return self._child.poll() is not None
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.pid, flags) is not None

    def is_stopped(self) -> bool:
        """Returns whether it was stopped (SIGSTOP), so that it cannot leave by itself."""
        if not hasattr(os, "waitid") or self._child.returncode is not None:
            return False
        flags = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.pid, flags) is not None

    def send(self, number: int) -> None:
        """Sends it a signal; what it started itself is its own affair.

        Args:
            number: The signal.
        """
        if self._child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kills it, and what it started, whether it is stopped or not."""
        if self._child.returncode is None:
            self._kill_group()
            self.send(signal.SIGKILL)

    def _kill_group(self) -> None:
        if hasattr(os, "killpg"):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)


def _join(stream: IO[bytes], reader: threading.Thread) -> None:
    """Waits until all of a stream is read, unless another process keeps it open and is silent."""
    silence = 0.0
    while reader.is_alive() and silence < _LAST_WORDS_SECONDS:
        reader.join(_PAUSE_SECONDS)
        with contextlib.suppress(ValueError):  # It is closed: the reader ends.
            readable, _, _ = select.select([stream], [], [], 0.0)
            silence = 0.0 if readable else silence + _PAUSE_SECONDS


def _dies_with(parent: int) -> Callable[[], None] | None:
    """Makes the function that a child runs before it becomes another program.

    On Linux the kernel kills the child when the launcher dies, however that dies. Elsewhere a child
    of a killed launcher finds its pipes closed, and ends when it next says something.
    """
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # It died before the kernel knew.
            os._exit(1)

    return prepare
