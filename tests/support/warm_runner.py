"""Runs `runner` in forks of a process that has imported TensorFlow, which saves seconds each.

A fork does all else that a new process does. A test uses a new process instead if it is about the
start itself: what is imported, or variables such as `PYTHONHASHSEED` that Python reads first.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, NoReturn

_ROOT = Path(__file__).resolve().parents[2]
_REQUEST_BYTES = 2**20
# A limit for what hangs; on a busy machine, starting alone takes seconds.
_SECONDS = 600.0
Stream = int | IO[Any]


class WarmProcess:
    """A run in a fork, in a session of its own. It is killed when the process that started it ends.

    It has the methods of `subprocess.Popen` that tests use. Texts are in UTF-8.
    """

    def __init__(
        self, args: Sequence[str], pid: int, status: socket.socket, pipes: Sequence[int | None]
    ) -> None:
        self.args = args
        self.pid = pid
        self.returncode: int | None = None
        self.stdout, self.stderr = (None if pipe is None else os.fdopen(pipe) for pipe in pipes)
        self._status = status

    def poll(self) -> int | None:
        """Returns the exit code, negative for a signal; None while the process runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = _SECONDS) -> int:
        """Waits for the end, and returns the exit code. Raises `subprocess.TimeoutExpired`."""
        if self.returncode is None:
            readable, _, _ = select.select([self._status], [], [], timeout)
            if not readable:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = int(self._status.recv(_REQUEST_BYTES))
            self._status.close()
        return self.returncode

    def communicate(self, timeout: float = _SECONDS) -> tuple[str, str]:
        """Waits for the end, and returns what was written to the pipes."""
        with ThreadPoolExecutor(2) as pool:
            texts = [
                pool.submit(lambda stream: stream.read() if stream else "", stream)
                for stream in (self.stdout, self.stderr)
            ]
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()  # Otherwise, reading would not end.
                raise
            out, err = (text.result() for text in texts)
        return out, err

    def send_signal(self, number: int) -> None:
        """Sends a signal; does nothing if the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kills the process."""
        self.send_signal(signal.SIGKILL)


def start(
    *arguments: str,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    stdin: Stream = subprocess.DEVNULL,
    stdout: Stream = subprocess.PIPE,
    stderr: Stream = subprocess.PIPE,
    listener: socket.socket | None = None,
) -> WarmProcess:
    """Starts `runner` with these arguments; the others are those of `subprocess.Popen`.

    `listener` receives the descriptor that answers the writing system calls of the run.
    """
    args = ["runner", *arguments]
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    request = {
        "arguments": arguments,
        "environ": dict(os.environ if env is None else env),
        "cwd": str(cwd or os.getcwd()),
    }
    with theirs, open(os.devnull, "r+b") as devnull:
        pipes: list[tuple[int, int] | None] = []
        descriptors = [theirs.fileno()]
        for stream in (stdin, stdout, stderr):
            pipe = os.pipe() if stream == subprocess.PIPE else None
            pipes.append(pipe)
            if pipe is not None:
                descriptors.append(pipe[1])
            elif stream == subprocess.STDOUT:
                descriptors.append(descriptors[2])
            elif stream == subprocess.DEVNULL:
                descriptors.append(devnull.fileno())
            else:
                descriptors.append(stream if isinstance(stream, int) else stream.fileno())
        if listener is not None:
            descriptors.append(listener.fileno())
        socket.send_fds(_server(), [json.dumps(request).encode()], descriptors)
        for pipe in filter(None, pipes):
            os.close(pipe[1])
    pid = int(ours.recv(_REQUEST_BYTES))
    return WarmProcess(args, pid, ours, [pipe and pipe[0] for pipe in pipes[1:]])


def run(
    *arguments: str,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = _SECONDS,
    check: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Runs `runner`, and returns what it wrote, as `subprocess.run` does."""
    process = start(*arguments, cwd=cwd, env=env)
    out, err = process.communicate(timeout)
    completed = subprocess.CompletedProcess(process.args, process.wait(), out, err)
    if check:
        completed.check_returncode()
    return completed


@functools.cache
def _server() -> socket.socket:
    """Starts the server of this process, which ends with it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    with theirs:
        subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,
        )
    return ours


def _serve(channel: socket.socket) -> None:
    """Forks a run for each request; the answer is its process ID, and its exit code at the end."""
    from tests.support.forks import import_modules, reason_not_to_fork

    import_modules()
    if reason := reason_not_to_fork():
        raise SystemExit(reason)
    wakeup, ended = socket.socketpair()
    wakeup.setblocking(False)
    ended.setblocking(False)
    signal.set_wakeup_fd(ended.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    statuses: dict[int, socket.socket] = {}
    parent = os.getpid()
    while True:
        readable, _, _ = select.select([channel, wakeup], [], [])
        if wakeup in readable:
            with contextlib.suppress(BlockingIOError):
                wakeup.recv(_REQUEST_BYTES)
            _report_ended(statuses)
        if channel not in readable:
            continue
        message, descriptors, _, _ = socket.recv_fds(channel, _REQUEST_BYTES, 5)
        if not message:
            return
        child = os.fork()
        if not child:
            _run(json.loads(message), descriptors, parent)
        statuses[child] = socket.socket(fileno=descriptors[0])
        for descriptor in descriptors[1:]:
            os.close(descriptor)


def _report_ended(statuses: dict[int, socket.socket]) -> None:
    for pid in [*statuses]:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            with statuses.pop(pid) as connection, contextlib.suppress(BrokenPipeError):
                connection.send(str(os.waitstatus_to_exitcode(status)).encode())


def _run(request: Mapping[str, Any], descriptors: Sequence[int], parent: int) -> NoReturn:
    from tests.support.forks import run_in_fork

    code = 1
    try:
        os.setsid()
        # Only now can those who asked for the run send signals to its process group.
        socket.socket(fileno=os.dup(descriptors[0])).send(str(os.getpid()).encode())
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if len(descriptors) == 5:
            from tests.faults.system_calls import send_listener

            send_listener(descriptors.pop())
        for number, descriptor in enumerate(descriptors[1:]):
            os.dup2(descriptor, number)
        os.closerange(3, 256)
        _open_streams(request["environ"])
        os.chdir(request["cwd"])
        own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        python_path = request["environ"].get("PYTHONPATH", "").split(os.pathsep)
        rest = [place for place in sys.path[1:] if place not in own]
        sys.path[:] = [request["cwd"], *filter(None, python_path), *rest]
        run_in_fork(request["arguments"], request["environ"], parent)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _open_streams(environ: Mapping[str, str]) -> None:
    """Opens the standard streams as Python does when it starts."""
    sys.stdin = sys.__stdin__ = os.fdopen(0, closefd=False)
    interactive = os.isatty(1) or bool(environ.get("PYTHONUNBUFFERED"))
    sys.stdout = sys.__stdout__ = os.fdopen(
        1, "w", buffering=1 if interactive else -1, closefd=False
    )
    sys.stderr = sys.__stderr__ = os.fdopen(
        2, "w", buffering=1, errors="backslashreplace", closefd=False
    )


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
