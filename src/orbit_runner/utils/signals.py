"""The signals that ask a process to exit or that ended it, and child processes."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

from orbit_runner import exit_codes

_interrupted = False


def exit_signals(*, terminate: bool = True) -> list[int]:
    """Returns the signals that ask this process to exit: SIGINT, SIGTERM and SIGHUP.

    SIGTERM is included only if `terminate` is true. SIGHUP means that the terminal or the
    connection was closed. It is not included on Windows, or if it is ignored, such as by `nohup`.
    """
    signals = [signal.SIGINT, *([signal.SIGTERM] if terminate else [])]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signals.append(signal.SIGHUP)
    return [int(number) for number in signals]


@contextlib.contextmanager
def handler_scope(
    handler: Callable[[int, FrameType | None], None],
    numbers: Sequence[int],
    handler_after: Callable[[int, Any], Any] = lambda number, before: before,
) -> Iterator[None]:
    """Handles signals within a `with` block; nothing outside the main thread.

    `handler_after` returns the handler that follows, from the number and the handler before.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Python delivers signals to the main thread only.
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, handler_after(number, earlier))


def signal_name(number: int) -> str:
    """Returns the name of a signal, such as `SIGTERM`."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def describe_exit(returncode: int) -> str:
    """Returns how a child process ended, as the end of a sentence.

    Args:
        returncode: The attribute of `subprocess.Popen`: the exit code, or minus the signal.
    """
    if returncode < 0:
        return f"was killed by {signal_name(-returncode)}"
    return f"exited with code {returncode}"


def run_child(arguments: Sequence[str]) -> tuple[int, str]:
    """Runs a command. Returns its exit code and its standard output.

    `arguments` are those after `runner`.
    """
    import subprocess  # Not at the top: every command imports this module.

    # In a separate session, the child receives Ctrl-C only once, from this process. A second one
    # would keep it from saving.
    child = subprocess.Popen(
        [sys.executable, "-m", "orbit_runner", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )

    with handler_scope(lambda number, frame: child.send_signal(number), exit_signals()):
        text, _ = child.communicate()
    return exit_codes.of_child(child.returncode), text


def install_interrupt_handler() -> None:
    """Makes Ctrl-C end the process with one line, until a command handles it."""
    signal.signal(signal.SIGINT, _handle_interrupt)
    sys.unraisablehook = _handle_unraisable


def ignore_interrupts() -> None:
    """Ignores Ctrl-C while the process exits."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def was_interrupted() -> bool:
    """Returns whether Ctrl-C was pressed before a command handled it."""
    return _interrupted


def _handle_interrupt(number: int, frame: FrameType | None) -> None:
    global _interrupted
    if _interrupted:
        _exit_interrupted()  # The first exception was caught, or the exit takes too long.
    _interrupted = True
    raise KeyboardInterrupt


def _handle_unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    # Python cannot raise errors in destructors and callbacks, which imports run. It would print a
    # traceback and continue.
    if unraisable.exc_type is KeyboardInterrupt:
        _exit_interrupted()
    sys.__unraisablehook__(unraisable)


def _exit_interrupted() -> None:
    os.write(2, b"runner: interrupted\n")
    os._exit(exit_codes.after_signal(signal.SIGINT))


# Platforms may send the same request to a process and to its group. Closing a terminal does. And
# `runner sweep` and `runner launch` forward theirs, on a busy machine some seconds later.
_SAME_REQUEST_SECONDS = 5.0
_UNSAVED = "nothing has been saved since the last checkpoint"


class LeftAtOnce(KeyboardInterrupt):
    """Raised at a second signal, anywhere in the main thread; like Ctrl-C, not an `Exception`."""

    def __init__(self, number: int) -> None:
        super().__init__(f"{signal_name(number)} again, {_UNSAVED}")
        self.exit_code = exit_codes.after_signal(number)


class SignalGuard:
    """Stores the first signal that asks this process to exit, until its work can end.

    With `raises`, a second Ctrl-C raises `KeyboardInterrupt` immediately, and a second signal of
    another kind `LeftAtOnce`, unless it follows the first within five seconds. SIGTERM is included
    only if `terminate` is true.

    Attributes:
        received: The number of the first signal, or None.
        should_kill: Whether Ctrl-C followed it.
    """

    def __init__(
        self,
        *,
        raises: bool = False,
        terminate: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._raises = raises
        self._terminate = terminate
        self._clock = clock
        self._end_of_request = 0.0  # until then, a signal belongs to the request of the first
        self.received: int | None = None
        self.should_kill = False

    @contextlib.contextmanager
    def installed_scope(self) -> Iterator[None]:
        """Stores the signals that arrive within a `with` block."""
        numbers = exit_signals(terminate=self._terminate)
        with handler_scope(self.receive, numbers, self._handler_after_scope):
            yield

    def receive(self, number: int, frame: FrameType | None = None) -> None:
        """Stores a signal."""
        if self.received is None:
            self._end_of_request = self._clock() + _SAME_REQUEST_SECONDS
            self.received = number
            return
        self.should_kill = self.should_kill or number == signal.SIGINT
        if self._raises and number == signal.SIGINT:
            raise KeyboardInterrupt(_UNSAVED)
        if self._raises and self._clock() >= self._end_of_request:
            raise LeftAtOnce(number)

    def _handler_after_scope(self, number: int, before: Any) -> Any:
        """Returns the handler that replaces that of the scope; `before` is that before the scope.

        By default, a signal ends the process. After the first signal, the second of the same
        request must not do so before the process has said that it has saved.
        """
        is_kept = before != signal.SIG_DFL or number == signal.SIGINT
        if not self._raises or self.received is None or is_kept:
            return before

        def handle(number: int, frame: FrameType | None) -> None:
            if self._clock() >= self._end_of_request:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)

        return handle

    @property
    def forwarded_signal(self) -> int:
        """The signal to send to members: SIGINT for Ctrl-C, SIGTERM for all others."""
        return signal.SIGINT if self.received == signal.SIGINT else signal.SIGTERM
