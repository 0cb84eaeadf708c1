"""The signals that ask a process to leave, and Ctrl-C while a command starts."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

_interrupted = False


def leave_signals(*, terminate: bool = True) -> list[int]:
    """Returns the signals that ask this process to leave: SIGINT, SIGTERM and SIGHUP.

    SIGHUP says that the terminal or the connection is gone. `nohup` ignores it, and then it stays
    ignored. Windows does not have it.

    Args:
        terminate: Whether SIGTERM is one of them.
    """
    found = [signal.SIGINT, *([signal.SIGTERM] if terminate else [])]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        found.append(signal.SIGHUP)
    return [int(number) for number in found]


def install() -> None:
    """Makes Ctrl-C end the process with one line, from now on and until a command handles it."""
    signal.signal(signal.SIGINT, _interrupt)
    sys.unraisablehook = _unraisable


def ignore_interrupts() -> None:
    """Ignores Ctrl-C while the process ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def was_interrupted() -> bool:
    """Returns whether Ctrl-C came before a command handled it."""
    return _interrupted


def _interrupt(number: int, frame: FrameType | None) -> None:
    global _interrupted
    if _interrupted:
        _exit()  # The first one was caught on its way, or takes too long.
    _interrupted = True
    raise KeyboardInterrupt


def _unraisable(found: sys.UnraisableHookArgs) -> None:
    # Python cannot raise in a destructor or a callback, of which each import has some: it would
    # print a traceback and continue.
    if found.exc_type is KeyboardInterrupt:
        _exit()
    sys.__unraisablehook__(found)


def _exit() -> None:
    os.write(2, b"runner: interrupted\n")
    os._exit(128 + signal.SIGINT)
