"""Starts the members of a cluster, ends all if one of them ends, and starts them again."""

from __future__ import annotations

import math
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
    attempt = 1
    while True:
        processes: list[Process] = []
        try:
            for spec in make_specs():
                processes.append(Process(spec, output))
            ending = _wait_for_end(processes, output, signals, limits)
        finally:
            _kill(processes)
        if ending is None:
            return 0
        if signals.received is not None:
            return ending.code
        if ending.rank == 1 or attempt > limits.restarts:
            output.note(f"{ending.text}; all members have ended")
            return ending.code
        restart = f"{attempt} of {limits.restarts}"
        output.note(f"{ending.text}; restarting all members from the last checkpoint ({restart})")
        attempt += 1


def _wait_for_end(
    processes: Sequence[Process], output: Output, signals: SignalGuard, limits: Limits
) -> _Ending | None:
    """Waits until training ends, and forwards a signal. Returns what ended it; None if it is done.

    After a failure or a signal, members have some seconds to end. Servers, which the launcher ends,
    do not get the signal, because their clients need them to save.
    """
    clients = [process for process in processes if not process.spec.serves]
    end = math.inf
    is_forwarded = False
    while _running(clients) and not signals.should_kill and time.monotonic() < end:
        if signals.received is not None and not is_forwarded:
            output.note(
                f"{signal_name(signals.received)}: waiting up to {limits.grace:.0f} s for "
                f"{_names(_running(clients))} to save and exit; press Ctrl-C to kill them now"
            )
            for process in clients:
                process.send_signal(signals.forwarded_signal)
            is_forwarded = True
            end = time.monotonic() + limits.grace
        elif end == math.inf and (endings := _endings(processes)):
            first = min(endings)
            seconds = limits.settle if first.rank > 0 else 0.0
            if first.code in _STOPPED:  # A member was asked to exit, so the others save, too.
                seconds = limits.grace
                for process in clients:
                    process.send_signal(signal.SIGTERM)
            end = time.monotonic() + seconds
        time.sleep(_PAUSE_SECONDS)
    number = signals.received
    if number is not None and (late := _running(clients)):
        output.note(f"killed without saving: {_names(late)}")
    if all(process.status() == 0 for process in clients):
        return None
    if number is None:
        return min(_endings(processes))
    failed = (e for e in _endings(clients) if e.rank == 1 and e.code not in _STOPPED)
    return next(failed, _Ending(1, exit_codes.after_signal(number), signal_name(number)))


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
    return ", ".join(process.spec.name for process in processes)


def _kill(processes: Sequence[Process]) -> None:
    for process in processes:
        process.kill()
    # SIGKILL cannot be ignored, but a process in a system call on a failed disk may survive it.
    end = time.monotonic() + _KILL_SECONDS
    while _running(processes) and time.monotonic() < end:
        time.sleep(_PAUSE_SECONDS)
