"""A process that the launcher started, and its output, with its name before each line.

It ends when the launcher ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import IO

from orbit_runner.errors import RunnerError

_LAST_WORDS_SECONDS = 10.0
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LONGEST_LINE = 1 << 16


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
