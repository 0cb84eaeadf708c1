"""Starts the members of a cluster, ends all if one of them ends, and starts them again."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from orbit_runner import exit_codes
from orbit_runner.launch.process import Output, Process, Spec
from orbit_runner.utils.signals import SignalGuard, describe_exit, signal_name

_PAUSE_SECONDS = 0.1
_KILL_SECONDS = 10.0
_STOPPED = [*map(exit_codes.after_signal, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))]


class Limits(NamedTuple):
    """Limits of restarts and waiting times."""

    restarts: int = 3  # how often all members are started again after one is lost
    grace: float = 30.0  # seconds for members to save and exit
    settle: float = 5.0  # seconds for the other members to end after one has failed


class _Ending(NamedTuple):
    """How a process ended. The smallest of several explains the others."""

    # TensorFlow may crash, and members report a loss, because another member failed.
    rank: int  # 0: killed by SIGKILL; 1: failed; 2: crashed, or reports a loss
    code: int  # as a shell reports it
    text: str


def supervise(
    make_specs: Callable[[], Sequence[Spec]], output: Output, signals: SignalGuard, limits: Limits
) -> int:
    """Runs a cluster until training is done, and again if a member is lost. Returns the exit code.

    `make_specs` returns the processes of an attempt. The exit code is that of the process that
    failed first, 128 + n for signal n, or 0.
    """

    def tell(text: str) -> None:
        output.write_line("launcher", text.encode())

    attempt = 1
    while True:
        processes: list[Process] = []
        try:
            for spec in make_specs():
                processes.append(Process(spec, output))
            ending = _watch(processes, signals, limits)
            if signals.received is not None:
                return _forward(signals.received, processes, signals, limits, tell)
        finally:
            _kill(processes)
        if ending is None:
            return 0
        if ending.rank == 1 or attempt > limits.restarts:
            tell(f"{ending.text}; all members have ended")
            return ending.code
        restart = f"{attempt} of {limits.restarts}"
        tell(f"{ending.text}; restarting all members from the last checkpoint ({restart})")
        attempt += 1


def _watch(processes: Sequence[Process], signals: SignalGuard, limits: Limits) -> _Ending | None:
    """Waits for the end of training, of a member, or for a signal; returns what ended training."""
    clients = _clients(processes)
    while signals.received is None and any(process.status() != 0 for process in clients):
        if endings := _endings(processes):
            first = min(endings)
            if first.rank > 0:
                _wait(clients, limits.settle, signals)
            return min(first, *_endings(processes))
        time.sleep(_PAUSE_SECONDS)
    return None


def _forward(
    number: int,
    processes: Sequence[Process],
    signals: SignalGuard,
    limits: Limits,
    tell: Callable[[str], None],
) -> int:
    """Forwards a signal, and waits until all members have saved and exited.

    Servers do not get the signal, because their clients need them to save. Returns 128 + `number`;
    0 if all members were just done; or the exit code of a member that failed.
    """
    clients = _clients(processes)
    tell(
        f"{signal_name(number)}: waiting up to {limits.grace:.0f} s for "
        f"{_names(_running(clients))} to save and exit; press Ctrl-C to kill them now"
    )
    for process in clients:
        process.send_signal(signals.forwarded_signal)
    _wait(clients, limits.grace, signals)
    late = _running(clients)
    if late:
        tell(f"killed without saving: {_names(late)}")
    endings = _endings(clients)
    failed = [ending.code for ending in endings if ending.rank == 1 and ending.code not in _STOPPED]
    return failed[0] if failed else exit_codes.after_signal(number) if late or endings else 0


def _clients(processes: Iterable[Process]) -> list[Process]:
    """Returns the processes that end by themselves; servers run until the launcher ends them."""
    return [process for process in processes if not process.spec.serves]


def _running(processes: Iterable[Process]) -> list[Process]:
    return [process for process in processes if process.status() is None]


def _endings(processes: Iterable[Process]) -> list[_Ending]:
    """Returns how processes ended, without those that are done."""
    endings = []
    for process in processes:
        if status := process.status():
            code = status if status > 0 else 128 - status
            # A server that exits on request is lost to its clients.
            if process.spec.serves and code in _STOPPED:
                code = exit_codes.MEMBER_LOST
            is_lost = code == exit_codes.MEMBER_LOST or (status < 0 and code not in _STOPPED)
            rank = 0 if status == -signal.SIGKILL else 2 if is_lost else 1
            endings.append(_Ending(rank, code, f"{process.spec.name} {describe_exit(status)}"))
    return endings


def _names(processes: Iterable[Process]) -> str:
    return ", ".join(process.spec.name for process in processes) or "no member"


def _wait(processes: Sequence[Process], seconds: float, signals: SignalGuard | None = None) -> None:
    """Waits until processes have ended, for some seconds, or until Ctrl-C is pressed again."""
    end = time.monotonic() + seconds
    while _running(processes) and time.monotonic() < end:
        if signals is not None and signals.should_kill:
            return
        time.sleep(_PAUSE_SECONDS)


def _kill(processes: Sequence[Process]) -> None:
    for process in processes:
        process.kill()
    # SIGKILL cannot be ignored, but a process in a system call on a failed disk may survive it.
    _wait(processes, _KILL_SECONDS)
