"""Starts the members of a cluster, ends all if one of them ends, and starts them again."""

from __future__ import annotations

import dataclasses
import signal
import time
from collections.abc import Callable, Iterable, Sequence

from orbit_runner import exit_codes
from orbit_runner.launch.process import Output, Process, Spec
from orbit_runner.utils.signals import SignalGuard, describe_exit, signal_name

_PAUSE_SECONDS = 0.1
_LOST = exit_codes.MEMBER_LOST
_EXIT_CODES = [
    exit_codes.after_signal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of restarts and waiting times."""

    restarts: int = 3  # how often all members are started again after one is lost
    grace: float = 30.0  # seconds for members to save and exit
    settle: float = 5.0  # seconds for the other members to end after one has failed


def supervise(
    make_specs: Callable[[], Sequence[Spec]], output: Output, signals: SignalGuard, limits: Limits
) -> int:
    """Runs a cluster until training is done, and again if a member is lost. Returns the exit code.

    `make_specs` returns the processes of an attempt. The exit code is that of the process that
    failed first, 128 + n for signal n, or 0.
    """
    attempt = 1
    while True:
        processes: list[Process] = []
        try:
            for spec in make_specs():
                processes.append(Process(spec, output))
            ending = _Attempt(processes, output, signals, limits).watch()
        finally:
            _kill(processes)
        if isinstance(ending, int):
            return ending
        if signals.received is not None:
            return exit_codes.after_signal(signals.received)
        if ending.kind in ("failed", "left") or attempt > limits.restarts:
            output.note(f"{ending.text}; all members have ended")
            return ending.code
        restart = f"{attempt} of {limits.restarts}"
        output.note(f"{ending.text}; restarting all members from the last checkpoint ({restart})")
        attempt += 1


class _Ending:
    """How a process ended: its exit code, or minus the number of the signal that killed it.

    `kind` is `killed` (SIGKILL), `failed`, `left` (on request), `crashed` or `lost` (the process
    reports a loss).
    """

    def __init__(self, process: Process, status: int) -> None:
        self.text = f"{process.spec.name} {describe_exit(status)}"
        # As a shell reports it. A server that exits on request is lost to its clients.
        self.code = status if status >= 0 else 128 - status
        if process.spec.serves and self.code in _EXIT_CODES:
            self.code = _LOST
        if status == -signal.SIGKILL:
            self.kind = "killed"
        elif self.code in _EXIT_CODES:
            self.kind = "left"
        elif self.code == _LOST:
            self.kind = "lost"
        else:
            self.kind = "crashed" if status < 0 else "failed"


def _first(endings: Iterable[_Ending]) -> _Ending:
    """Returns the ending that explains the others.

    TensorFlow may crash, and members report a loss, because another member was lost.
    """
    order = ("killed", "failed", "left", "crashed", "lost")
    return min(endings, key=lambda ending: order.index(ending.kind))


class _Attempt:
    """The processes of an attempt."""

    def __init__(
        self, processes: Sequence[Process], output: Output, signals: SignalGuard, limits: Limits
    ) -> None:
        self._processes = processes
        self._output = output
        self._signals = signals
        self._limits = limits
        # Servers run until the launcher ends them.
        self._clients = [process for process in processes if not process.spec.serves]

    def watch(self) -> int | _Ending:
        """Waits for the end of training or of a member. Returns the exit code, or what ended it."""
        while self._signals.received is None:
            endings = _endings(self._processes)
            if all(process.status() == 0 for process in self._clients):
                return 0
            if endings:
                return self._find_cause(_first(endings))
            time.sleep(_PAUSE_SECONDS)
        return self._forward(self._signals.received)

    def _find_cause(self, first: _Ending) -> _Ending:
        """Lets the other members end, and returns what ended the attempt."""
        if first.kind == "left":
            self._exit(signal.SIGTERM)
        if first.kind in ("failed", "lost"):
            self._wait(self._limits.settle)
        # A loss that a member reports is explained by the endings of others.
        return _first([first, *(_endings(self._processes) if first.kind == "lost" else [])])

    def _forward(self, number: int) -> int:
        """Forwards a signal, and waits until all members have saved and exited.

        Servers do not get the signal, because their clients need them to save. Returns 128 +
        `number`; 0 if all members were just done; or the exit code of a member that failed.
        """
        self._output.note(
            f"{signal_name(number)}: waiting up to {self._limits.grace:.0f} s for "
            f"{_names(_running(self._clients))} to save and exit; press Ctrl-C to kill them now"
        )
        late = self._exit(self._signals.forwarded_signal)
        endings = _endings(self._clients)
        failed = [ending.code for ending in endings if ending.kind == "failed"]
        return failed[0] if failed else exit_codes.after_signal(number) if late or endings else 0

    def _exit(self, number: int) -> list[Process]:
        """Asks all members to save and exit. Returns those that did not."""
        for process in _running(self._clients):
            process.send_signal(number)
        self._wait(self._limits.grace)
        late = _running(self._clients)
        if late:
            self._output.note(f"killed without saving: {_names(late)}")
        return late

    def _wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while _running(self._clients) and not self._signals.should_kill and time.monotonic() < end:
            time.sleep(_PAUSE_SECONDS)


def _running(processes: Iterable[Process]) -> list[Process]:
    return [process for process in processes if process.status() is None]


def _endings(processes: Iterable[Process]) -> list[_Ending]:
    """Returns how processes ended, without those that are done."""
    statuses = [(process, process.status()) for process in processes]
    return [_Ending(process, status) for process, status in statuses if status]


def _names(processes: Iterable[Process]) -> str:
    return ", ".join(process.spec.name for process in processes) or "no member"


def _kill(processes: Sequence[Process]) -> None:
    for process in _running(processes):
        process.kill()
    # SIGKILL cannot be ignored, but a process in a system call on a failed disk may survive it.
    end = time.monotonic() + 10.0
    while _running(processes) and time.monotonic() < end:
        time.sleep(_PAUSE_SECONDS)
