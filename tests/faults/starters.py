"""Starts runs whose writing system calls a test answers: as new processes, or as forks.

A fork of a process that has imported TensorFlow saves the seconds that the import takes. The fork
does all else that a new process does.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol

from tests.faults.system_calls import install_filter

_ROOT = Path(__file__).resolve().parents[2]
_REQUEST_BYTES = 2**20


class Starter(Protocol):
    """Starts one run at a time."""

    def start(self, arguments: Sequence[str], log: Path) -> int:
        """Starts `runner` with its output in a file, and returns the descriptor of a listener."""
        ...

    def wait(self, seconds: float) -> int:
        """Waits for the end of the run, and returns its exit code, negative for a signal."""
        ...

    def end(self) -> None:
        """Kills what runs."""
        ...


class ProcessStarter:
    """Starts each run as a new process."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, arguments: Sequence[str], log: Path) -> int:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", __name__, "exec", str(theirs.fileno())]
        with ours, theirs, log.open("wb") as output:
            self._process = subprocess.Popen(
                [*command, sys.executable, "-m", "orbit_runner", *arguments],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=log.parent,
                env=_environ(),
            )
            theirs.close()
            return _receive_listener(ours)

    def wait(self, seconds: float) -> int:
        assert self._process is not None
        return self._process.wait(seconds)

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class ForkStarter:
    """Starts each run as a fork of a process that has imported TensorFlow."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, "fork", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=_environ(),
            )

    def start(self, arguments: Sequence[str], log: Path) -> int:
        log.unlink(missing_ok=True)
        request = {"arguments": [*arguments], "environ": _environ(), "log": str(log)}
        ours, theirs = socket.socketpair()
        with ours, theirs:
            socket.send_fds(self._socket, [json.dumps(request).encode()], [theirs.fileno()])
            theirs.close()
            return _receive_listener(ours)

    def wait(self, seconds: float) -> int:
        self._socket.settimeout(seconds)
        return int(self._socket.recv(_REQUEST_BYTES))

    def end(self) -> None:
        self._process.kill()  # The kernel then kills its forks.
        self._process.wait()
        self._socket.close()


class Starters:
    """A number of starters, each of which is used by one thread at a time."""

    def __init__(self, kind: Callable[[], Starter], count: int) -> None:
        self._all = [kind() for _ in range(count)]
        self._free = queue.SimpleQueue[Starter]()
        for starter in self._all:
            self._free.put(starter)

    @contextlib.contextmanager
    def borrow(self) -> Iterator[Starter]:
        """Yields a starter that no other thread uses; waits for one."""
        starter = self._free.get()
        try:
            yield starter
        finally:
            self._free.put(starter)

    def end(self) -> None:
        """Ends all of them."""
        for starter in self._all:
            starter.end()


def _environ() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{_ROOT}{os.pathsep}{_ROOT / 'src'}"}


def _receive_listener(connection: socket.socket) -> int:
    _, [descriptor], _, _ = socket.recv_fds(connection, 1, 1)
    return descriptor


def _send_listener(descriptor: int) -> None:
    """Installs the filter in this process, and sends the descriptor for its `Listener`."""
    with socket.socket(fileno=descriptor) as connection:
        listener = install_filter()
        socket.send_fds(connection, [b"."], [listener])
        os.close(listener)


def _serve_forks(channel: socket.socket) -> None:
    """Forks a run for each request, and answers with its exit code."""
    from tests.support.forks import import_modules, reason_not_to_fork

    import_modules()
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, _REQUEST_BYTES, 1)
        if not message:
            return
        if reason := reason_not_to_fork():
            raise SystemExit(reason)
        parent = os.getpid()
        child = os.fork()
        if not child:
            _run_in_fork(json.loads(message), descriptors[0], parent)
        os.close(descriptors[0])
        _, status = os.waitpid(child, 0)
        channel.send(str(os.waitstatus_to_exitcode(status)).encode())


def _run_in_fork(request: Mapping[str, Any], descriptor: int, parent: int) -> NoReturn:
    from tests.support.forks import redirect_output, run_in_fork

    try:
        log = Path(request["log"])
        os.chdir(log.parent)
        _send_listener(descriptor)
        redirect_output(log)
        run_in_fork(request["arguments"], request["environ"], parent)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(1)


if __name__ == "__main__":
    if sys.argv[1] == "fork":
        _serve_forks(socket.socket(fileno=int(sys.argv[2])))
    else:
        _send_listener(int(sys.argv[2]))
        os.execv(sys.argv[3], sys.argv[3:])
