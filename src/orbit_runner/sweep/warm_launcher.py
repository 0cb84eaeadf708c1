"""Starts trials by forking a process that has imported TensorFlow already, the warm parent.

Importing TensorFlow and Model Garden takes seconds, which a fork saves. The warm
parent is `orbit_runner.cli.sweep.warm_parent`.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orbit_runner.launch.process import parent_death_hook
from orbit_runner.sweep.cold_launcher import ColdLauncher
from orbit_runner.sweep.json_socket import JsonSocket
from orbit_runner.sweep.trial_process import TrialCommand, TrialProcess
from orbit_runner.utils.log import note

_PARENT = "orbit_runner.cli.sweep.warm_parent"
_WAIT_SECONDS = 10.0
# Read when a GPU is used first, not when TensorFlow is imported.
_LATE_VARIABLES = ("CUDA_VISIBLE_DEVICES",)


class WarmLauncher:
    """A `TrialLauncher` that forks trials; starts them cold if that is not safe.

    All methods must be called in one thread that lives as long as the trials: on Linux, they are
    killed when it ends. `root` is the directory of the sweep, whose `logs/warm_parent.log` has what
    the warm parents print.
    """

    def __init__(self, root: Path) -> None:
        self._log = root / "logs" / "warm_parent.log"
        self._parents: list[_Parent] = []
        self._cold = ColdLauncher()
        self._starts_cold = self._has_warned = False

    def start(self, command: TrialCommand) -> TrialProcess:
        """Starts a trial. The first one waits until the warm parent is ready."""
        reason = ""
        # The second parent replaces one that was killed, or whose modules changed on disk.
        for _ in range(0 if self._starts_cold else 2):
            parent = self._get_parent(command)
            number = parent.fork(command)
            if number is not None:
                return _ForkedTrial(parent, number)
            reason = parent.refusal
            if parent.is_unsafe:
                self._starts_cold = True
                break
        if reason:
            self._warn_once(reason)
        return self._cold.start(command)

    def _warn_once(self, reason: str) -> None:
        """Warns once why trials start cold."""
        if not self._has_warned:
            note(f"warning: each trial imports TensorFlow, which takes time: {reason}")
            self._has_warned = True
        self._close_unused()

    def close(self) -> None:
        """Ends the warm parents, and the trials that still run."""
        for parent in self._parents:
            parent.close()
        self._parents.clear()
        self._cold.close()

    def _get_parent(self, command: TrialCommand) -> _Parent:
        key = _Key.from_command(command)
        found = next((one for one in self._parents if one.can_fork and one.key == key), None)
        if found is None:
            self._close_unused()
            found = _Parent(key, command, self._log)
            self._parents.append(found)
        return found

    def _close_unused(self) -> None:
        used = [parent for parent in self._parents if parent.has_trials()]
        for parent in self._parents:
            if parent not in used:
                parent.close()
        self._parents = used


@dataclasses.dataclass(frozen=True)
class _Key:
    """What native libraries read while they are imported. All trials of a parent have the same.

    For example, NumPy's matrix products depend on the number of threads, and so on the cores.
    """

    cores: int
    environ: Mapping[str, str]

    @classmethod
    def from_command(cls, command: TrialCommand) -> _Key:
        kept = {name: v for name, v in command.environ.items() if name not in _LATE_VARIABLES}
        return cls(len(command.cores), kept)


class _Parent:
    """A process that forks trials.

    It and its trials hold the other end of the socket, so an end of file at this end means that all
    of them have ended.
    """

    def __init__(self, key: _Key, command: TrialCommand, log: Path) -> None:
        self.key, self.refusal = key, ""
        self.can_fork = True  # whether it can start further trials
        self.is_unsafe = False  # whether another parent would fail, too
        self._log, self._ready = log, False
        self._pids: dict[int, int] = {}
        self._codes: dict[int, int] = {}
        self._count = 0
        ours, theirs = socket.socketpair()
        self._socket = JsonSocket(ours)
        with theirs:
            self._process = self._start_process(command, theirs.fileno())

    def _start_process(
        self, command: TrialCommand, descriptor: int
    ) -> subprocess.Popen[bytes] | None:
        cores = ",".join(map(str, command.cores))
        try:
            self._log.parent.mkdir(parents=True, exist_ok=True)
            with self._log.open("ab") as log:
                return subprocess.Popen(
                    [sys.executable, "-m", _PARENT, str(descriptor), cores],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=dict(command.environ),
                    pass_fds=[descriptor],
                    start_new_session=True,
                    preexec_fn=parent_death_hook(os.getpid()),
                )
        except OSError as error:
            self._refuse(str(error), unsafe=True)
            return None

    def fork(self, command: TrialCommand) -> int | None:
        """Starts a trial and returns its number. If that fails, sets `refusal` and returns None."""
        self._count += 1
        number = self._count
        self._socket.send(
            do="fork",
            trial=number,
            arguments=command.arguments,
            environ=dict(command.environ),
            cores=command.cores,
            log=str(command.log),
        )
        while self.can_fork and number not in self._pids:
            self.receive(None)
        return number if number in self._pids else None

    def receive(self, timeout: float | None = 0.0) -> None:
        """Reads what the process reports; waits for at most `timeout` seconds."""
        if self._process is None or self._process.returncode is not None:
            return
        messages = self._socket.receive(timeout)
        if messages is None:
            self._handle_end()
            return
        for message in messages:
            self._handle_message(message)

    def _handle_message(self, message: Mapping[str, Any]) -> None:
        self._ready = True
        if message["event"] == "forked":
            self._pids[message["trial"]] = message["pid"]
        elif message["event"] == "ended":
            self._codes[message["trial"]] = message["code"]
        elif message["event"] == "refused":
            self._refuse(message["reason"], unsafe=message["unsafe"])

    def _refuse(self, reason: str, *, unsafe: bool) -> None:
        self.can_fork, self.refusal, self.is_unsafe = False, reason, unsafe

    def _handle_end(self) -> None:
        assert self._process is not None
        self._process.kill()  # It may have closed the socket only.
        code = self._process.wait()
        self._mark_killed()
        # A process that failed before it was ready would do so again.
        failed = not self._ready and code not in (-signal.SIGKILL, -signal.SIGTERM)
        reason = f"the process that forks trials ended with code {code}; see {self._log}"
        self._refuse(reason, unsafe=failed)

    def _mark_killed(self) -> None:
        for number in self._pids:
            self._codes.setdefault(number, -signal.SIGKILL)

    def pid(self, number: int) -> int:
        """Returns the process ID of a trial."""
        return self._pids[number]

    def code(self, number: int) -> int | None:
        """Returns the exit code of a trial, None while it runs."""
        self.receive()
        return self._codes.get(number)

    def send_signal(self, number: int, signal_number: int) -> None:
        """Sends a signal to a trial."""
        self._socket.send(do="signal", trial=number, signal=signal_number)

    def has_trials(self) -> bool:
        """Returns whether a trial runs."""
        self.receive()
        return any(number not in self._codes for number in self._pids)

    def close(self) -> None:
        """Ends the process and its trials."""
        self.receive()
        self._socket.close()
        if self._process is None:
            return
        try:
            self._process.wait(_WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._mark_killed()


class _ForkedTrial:
    """A `TrialProcess` that a warm parent forked."""

    def __init__(self, parent: _Parent, number: int) -> None:
        self._parent, self._number = parent, number

    @property
    def pid(self) -> int:
        return self._parent.pid(self._number)

    def poll(self) -> int | None:
        return self._parent.code(self._number)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            self._parent.send_signal(self._number, number)
