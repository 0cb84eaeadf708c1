"""The warm parent of a sweep: imports what a run imports, then forks a trial per request.

Forking is safe only before TensorFlow has started: its threads would be missing in the trial. So
the process imports, but creates nothing, and runs no thread but its own. `WarmLauncher` starts it.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from socket import socket
from typing import Any

from orbit_runner.cli.sweep.forked_trial import run_trial
from orbit_runner.cli.sweep.loaded_files import LoadedFiles
from orbit_runner.sweep.json_socket import JsonSocket
from orbit_runner.tf_internals import has_tensorflow_started

# What a run imports, also at its end, and the tasks. None of them starts a thread on import.
_MODULES = (
    "orbit_runner.train_lib",
    "orbit_runner.cli.main",
    "orbit_runner.cli.commands.run",
    *(f"orbit_runner.models.{name}" for name in ("cnn", "mlp", "resnet_cifar")),
    *(f"orbit_runner.datasets.{name}" for name in ("cifar10", "digits", "mnist")),
    *(
        f"orbit_runner.tasks.{name}.task"
        for name in (
            *("image_classification", "keras", "recommendation", "tabular"),
            *("text_classification", "translation"),
        )
    ),
    *("orbit_runner.reporting.progress.factory", "orbit_runner.reporting.results"),
    *("orbit_runner.reporting.report_data.collection", "orbit_runner.reporting.run_record"),
    *("rich.console", "rich.text"),
)


def main(descriptor: int, cores: list[int]) -> None:
    """Imports modules, then forks trials until the launcher closes its end of the socket."""
    if cores:
        # Before NumPy is imported, which starts a thread per core.
        os.sched_setaffinity(0, cores)
    os.set_inheritable(descriptor, False)
    # Slurm sends SIGTERM to all processes of a step. The trials need their parent until they have
    # saved; it ends when the launcher closes its end of the socket.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    channel = JsonSocket(socket(fileno=descriptor))
    import_modules()
    reason = reason_not_to_fork()
    if reason:
        channel.send(event="refused", reason=reason, unsafe=True)
        return
    _Server(channel).serve()


def import_modules() -> None:
    """Imports what a run imports, with the environment variables that a run sets."""
    from orbit_runner.config.schema.runtime import RuntimeConfig
    from orbit_runner.distribute import tf_environment

    gc.disable()
    environ = dict(os.environ)
    tf_environment.prepare_environment(RuntimeConfig())
    for name in _MODULES:
        __import__(name)
    tf_environment.set_import_environment(environ)
    gc.freeze()


def reason_not_to_fork() -> str:
    """Returns why forks of this process could hang or fail, or "" if they are safe."""
    if not sys.platform.startswith("linux"):
        return f"forking after TensorFlow was imported is not safe on {sys.platform}"
    if has_tensorflow_started():
        return "TensorFlow has started before the fork"
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if os.readlink(descriptor).startswith("/dev/nvidia"):
                return "a GPU was used before the fork"
    _end_blas_threads()
    names = [task.joinpath("comm").read_text().strip() for task in _threads()]
    if len(names) > 1:
        return f"the imported modules started threads: {', '.join(sorted(names))}"
    return ""


def _threads() -> list[Path]:
    return [*Path("/proc/self/task").iterdir()]


def _end_blas_threads() -> None:
    """Forks once: OpenBLAS ends its threads before each fork, and starts them when needed."""
    if len(_threads()) == 1:
        return
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)


class _Server:
    """Forks trials, and reports how they end."""

    def __init__(self, channel: JsonSocket) -> None:
        self._channel, self._files = channel, LoadedFiles()
        self._trials: dict[int, int] = {}  # Numbers by process ID.
        self._wakeup, write = os.pipe()
        os.set_blocking(self._wakeup, False)
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write)
        # Without a handler, Python does not write to the pipe.
        signal.signal(signal.SIGCHLD, lambda number, frame: None)

    def serve(self) -> None:
        """Answers requests until the other end is closed, then ends the trials."""
        sources: list[Any] = [self._channel, self._wakeup]
        while True:
            readable, _, _ = select.select(sources, [], [])
            if self._wakeup in readable:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wakeup, 4096)
                self._report_ends()
            if self._channel in readable:
                requests = self._channel.receive()
                if requests is None:
                    break
                for request in requests:
                    self._answer(request)
        self._end_trials()

    def _answer(self, request: Mapping[str, Any]) -> None:
        if request["do"] == "fork":
            self._fork(request)
            return
        for process, trial in self._trials.items():
            if trial == request["trial"]:
                # It has not been waited for, so the ID belongs to it even if it has ended.
                os.kill(process, request["signal"])

    def _fork(self, request: Mapping[str, Any]) -> None:
        if changed := self._files.changed_file():
            self._refuse(f"{changed} has changed since it was imported", unsafe=False)
            return
        if reason := reason_not_to_fork():
            self._refuse(reason, unsafe=True)
            return
        parent = os.getpid()
        # A trial must not ignore a SIGTERM that arrives before it has handlers of its own.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        try:
            process = os.fork()
            if not process:
                run_trial(request, parent)
        except OSError as error:
            self._refuse(f"cannot fork: {error.strerror}", unsafe=True)
            return
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        self._trials[process] = request["trial"]
        self._channel.send(event="forked", trial=request["trial"], pid=process)

    def _refuse(self, reason: str, *, unsafe: bool) -> None:
        self._channel.send(event="refused", reason=reason, unsafe=unsafe)

    def _report_ends(self) -> None:
        for process in [*self._trials]:
            flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
            if os.waitid(os.P_PID, process, flags) is not None:
                code = self._end(process)
                self._channel.send(event="ended", trial=self._trials.pop(process), code=code)

    def _end(self, process: int) -> int:
        """Kills the processes that a trial started, and waits for it. Returns its exit code."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
        return os.waitstatus_to_exitcode(status)

    def _end_trials(self) -> None:
        for process in self._trials:
            os.kill(process, signal.SIGKILL)
            self._end(process)


if __name__ == "__main__":
    main(int(sys.argv[1]), [int(core) for core in sys.argv[2].split(",") if core])
