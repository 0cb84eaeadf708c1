"""The processes of one machine: started, watched, signalled, ended."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Sequence

from orbit_runner.launch.exit_status import Ending
from orbit_runner.launch.log_multiplexer import Screen
from orbit_runner.launch.process import Process, Spec
from orbit_runner.launch.roles import Part

PAUSE_SECONDS = 0.1


def format_names(processes: Iterable[Process]) -> str:
    """Returns the names of processes, for a message.

    Args:
        processes: The processes.
    """
    return ", ".join(process.spec.name for process in processes)


def until(condition: Callable[[], bool], seconds: float) -> bool:
    """Waits for a condition.

    Args:
        condition: Is asked ten times a second.
        seconds: How long to wait.

    Returns:
        Whether it came true.
    """
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(PAUSE_SECONDS)
    return True


class Crew:
    """The processes by name; a name that is started again replaces the one before."""

    def __init__(self, screen: Screen) -> None:
        """Starts nothing yet.

        Args:
            screen: Where all lines go.
        """
        self._screen = screen
        self._processes: dict[str, Process] = {}
        self._told: set[Process] = set()

    def start(self, spec: Spec) -> Process:
        """Starts a process.

        Args:
            spec: How to.

        Returns:
            The process.
        """
        process = self._processes[spec.name] = Process(spec, self._screen)
        return process

    def has(self, name: str) -> bool:
        """Returns whether a process was started under a name, whatever became of it.

        Args:
            name: The name.
        """
        return name in self._processes

    def is_settled(self, name: str) -> bool:
        """Returns whether a process runs, or has ended as it should.

        Args:
            name: Its name.
        """
        ending = self._processes[name].ending() if self.has(name) else None
        if ending is None:
            return self.has(name)
        return ending.kind in ("done", "left")

    def spec(self, name: str) -> Spec:
        """Returns how a process was started.

        Args:
            name: Its name.
        """
        return self._processes[name].spec

    def running(self, which: Callable[[Part], bool] = lambda part: True) -> list[Process]:
        """Returns the processes that have not ended.

        Args:
            which: Picks them by their parts.
        """
        picked = [p for p in self._processes.values() if which(p.spec.part)]
        return [process for process in picked if process.ending() is None]

    def endings(self, which: Callable[[Part], bool] = lambda part: True) -> list[Ending]:
        """Returns the ends that were not asked for before, in no order of time.

        Args:
            which: Picks the processes by their parts.
        """
        found = []
        for process in self._processes.values():
            if process in self._told or not which(process.spec.part):
                continue
            ending = process.ending()
            if ending is not None:
                self._told.add(process)
                found.append(ending)
        return found

    def end(self, processes: Sequence[Process], seconds: float, stop: Callable[[], bool]) -> None:
        """Ends processes whose exit codes do not count: SIGTERM, and after a time SIGKILL.

        Args:
            processes: The processes.
            seconds: The time between.
            stop: Whether there is no time to wait any more.
        """
        self._told.update(processes)
        for process in processes:
            if process.is_stopped():
                process.kill()  # It would take notice of SIGTERM only once it goes on.
            process.send(signal.SIGTERM)
        until(lambda: stop() or not _running(processes), seconds)
        self.kill(processes)

    def kill(self, processes: Sequence[Process]) -> list[Process]:
        """Kills those of some processes that still run.

        Args:
            processes: The processes.

        Returns:
            Those that it killed.
        """
        late = _running(processes)
        for process in late:
            process.kill()
        # SIGKILL leaves no choice, but a process in a system call of a dead disk may outlive it.
        until(lambda: not _running(late), 10.0)
        self._told.update(late)
        return late


def _running(processes: Sequence[Process]) -> list[Process]:
    return [process for process in processes if process.ending() is None]
