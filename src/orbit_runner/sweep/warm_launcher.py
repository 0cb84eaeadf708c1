"""Starts trials with the forkserver of `multiprocessing`, which has imported TensorFlow already."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import multiprocessing
import os
import signal
import sys
import time
import types
from collections.abc import Iterator, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path

from orbit_runner.sweep.cold_launcher import ColdLauncher
from orbit_runner.sweep.forked_trial import SERVER_VARIABLE, start_trial
from orbit_runner.sweep.trial_process import TrialCommand, TrialProcess
from orbit_runner.utils.log import note

_PRELOAD = "orbit_runner.sweep.preload"
# `multiprocessing` returns this exit code if the server was killed, and its forks with it.
_SERVER_LOST = 255
_RETRY_SECONDS = 0.2
# Read when a GPU is used first, not when TensorFlow is imported.
_LATE_VARIABLES = ("CUDA_VISIBLE_DEVICES",)


class WarmLauncher:
    """A `TrialLauncher` that forks trials; starts them cold if that is not safe.

    At most one per process, because the server has the environment and the number of cores of the
    first trial. NumPy's matrix products depend on the number of its threads, and so on the cores.

    All methods must be called in one thread that lives as long as the trials: on Linux, they are
    killed when it ends. `root` is the directory of the sweep, whose `logs/forkserver.log` has what
    the server prints. The server ends with this process.
    """

    def __init__(self, root: Path) -> None:
        self._log = (root / "logs" / "forkserver.log").resolve()
        self._cold = ColdLauncher()
        self._trials: list[_ForkedTrial] = []
        self._cores: int | None = None  # their number in a trial
        self._has_warned = False
        self._failure = ""  # why no further trial can be forked
        if not sys.platform.startswith("linux"):
            self._failure = f"forking after TensorFlow was imported is not safe on {sys.platform}"

    def start(self, command: TrialCommand) -> TrialProcess:
        """Starts a trial. The first one waits until the server has imported TensorFlow."""
        process, reason = (None, self._failure) if self._failure else self._fork(command)
        if process is not None:
            trial = _ForkedTrial(process)
            self._trials = [one for one in self._trials if one.poll() is None] + [trial]
            return trial
        if not self._has_warned:
            note(f"warning: each trial imports TensorFlow, which takes time: {reason}")
            self._has_warned = True
        return self._cold.start(command)

    def close(self) -> None:
        """Kills the trials that still run."""
        for trial in self._trials:
            trial.send_signal(signal.SIGKILL)

    def _fork(self, command: TrialCommand) -> tuple[BaseProcess | None, str]:
        """Returns a process that trains, or None and why there is none."""
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([_PRELOAD])
        command = dataclasses.replace(command, environ=dict(command.environ))
        self._cores = len(command.cores) if self._cores is None else self._cores
        if self._cores != len(command.cores) or _early(command.environ) != _early(os.environ):
            return None, "a trial has other environment variables or another number of cores"
        reason = ""
        for _ in range(2):  # A second server replaces one that was killed.
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=start_trial, args=(command, sender))
            try:
                with receiver, self._server_scope(command.cores):
                    with sender:
                        process.start()
                    reason = receiver.recv()
                if not reason:
                    return process, ""
                break
            except (OSError, EOFError) as error:
                cause = str(error) or "end of file"
                reason = f"the process that forks trials failed ({cause}); see {self._log}"
                time.sleep(_RETRY_SECONDS)  # until `multiprocessing` can wait for it
        self._failure = reason
        return None, reason

    @contextlib.contextmanager
    def _server_scope(self, cores: tuple[int, ...]) -> Iterator[None]:
        """Sets what a server reads that starts within a `with` block, if there is none.

        `multiprocessing` would also run the main module of this process again in each trial.
        """
        self._log.parent.mkdir(parents=True, exist_ok=True)
        main = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        os.environ[SERVER_VARIABLE] = json.dumps([str(self._log), cores])
        try:
            yield
        finally:
            del os.environ[SERVER_VARIABLE]
            sys.modules["__main__"] = main


def _early(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that may be read while a module is imported."""
    return {name: value for name, value in environ.items() if name not in _LATE_VARIABLES}


class _ForkedTrial:
    """A `TrialProcess` that the forkserver forked."""

    def __init__(self, process: BaseProcess) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        code = self._process.exitcode
        return -signal.SIGKILL if code == _SERVER_LOST else code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            send = os.killpg if number == signal.SIGKILL else os.kill
            with contextlib.suppress(ProcessLookupError):
                send(self.pid, number)
