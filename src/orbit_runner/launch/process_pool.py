"""Starts, watches, signals and ends the processes of one machine."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Sequence

from orbit_runner.launch.exit_status import Ending
from orbit_runner.launch.log_multiplexer import LogMultiplexer
from orbit_runner.launch.process import Process, Spec
from orbit_runner.launch.roles import RoleTraits

PAUSE_SECONDS = 0.1


def format_names(processes: Iterable[Process]) -> str:
    """Returns the names of processes, for a message."""
    return ", ".join(process.spec.name for process in processes)


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Waits until a condition is true, for at most `seconds`. Returns whether it became true."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(PAUSE_SECONDS)
    return True


class ProcessPool:
    """Processes by name; a process with the same name as an earlier one replaces it."""

    def __init__(self, output: LogMultiplexer) -> None:
        self._output = output
        self._processes: dict[str, Process] = {}
        self._reported: set[Process] = set()

    def start(self, spec: Spec) -> Process:
        """Starts a process and returns it."""
        process = self._processes[spec.name] = Process(spec, self._output)
        return process

    def has(self, name: str) -> bool:
        """Returns whether a process with this name was started, even if it has ended."""
        return name in self._processes

    def is_settled(self, name: str) -> bool:
        """Returns whether a process runs, or ended as `done` or `left`."""
        ending = self._processes[name].ending() if self.has(name) else None
        if ending is None:
            return self.has(name)
        return ending.kind in ("done", "left")

    def spec(self, name: str) -> Spec:
        """Returns how a process was started."""
        return self._processes[name].spec

    def running_processes(
        self, which: Callable[[RoleTraits], bool] = lambda traits: True
    ) -> list[Process]:
        """Returns the processes that have not ended, filtered by `which`."""
        picked = [p for p in self._processes.values() if which(p.spec.traits)]
        return [process for process in picked if process.ending() is None]

    def last_step(self) -> int:
        """Returns the last training step that a process has reported, -1 if there is none."""
        return max((process.last_step for process in self._processes.values()), default=-1)

    def new_endings(
        self, which: Callable[[RoleTraits], bool] = lambda traits: True
    ) -> list[Ending]:
        """Returns endings that were not returned before, unordered, filtered by `which`."""
        found = []
        for process in self._processes.values():
            if process in self._reported or not which(process.spec.traits):
                continue
            ending = process.ending()
            if ending is not None:
                self._reported.add(process)
                found.append(ending)
        return found

    def end(self, processes: Sequence[Process], seconds: float, stop: Callable[[], bool]) -> None:
        """Ends processes whose exit codes do not matter: SIGTERM, and SIGKILL after `seconds`.

        `stop` returns whether to send SIGKILL at once.
        """
        self._reported.update(processes)
        for process in processes:
            if process.is_stopped():
                process.kill()  # It would not handle SIGTERM before it continues.
            process.send_signal(signal.SIGTERM)
        wait_until(lambda: stop() or not _select_running(processes), seconds)
        self.kill(processes)

    def kill(self, processes: Sequence[Process]) -> list[Process]:
        """Kills the processes that still run, and returns them."""
        late = _select_running(processes)
        for process in late:
            process.kill()
        # SIGKILL cannot be ignored, but a process in a system call on a failed disk may survive it.
        wait_until(lambda: not _select_running(late), 10.0)
        self._reported.update(late)
        return late


def _select_running(processes: Sequence[Process]) -> list[Process]:
    return [process for process in processes if process.ending() is None]
