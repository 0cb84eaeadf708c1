"""The signals that ask a process to exit or that ended it, the cursor, and child processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from types import FrameType

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
    # In a separate session, the child receives Ctrl-C only once, from this process. A second one
    # would keep it from saving.
    child = subprocess.Popen(
        [sys.executable, "-m", "orbit_runner", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )

    def forward_signal(number: int, frame: FrameType | None) -> None:
        child.send_signal(number)

    before = {n: signal.signal(n, forward_signal) for n in exit_signals()}
    try:
        text, _ = child.communicate()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
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
    show_cursor()
    os.write(2, b"runner: interrupted\n")
    os._exit(exit_codes.after_signal(signal.SIGINT))


class Signals:
    """Stores the number of the first signal, and whether Ctrl-C followed it."""

    def __init__(self) -> None:
        self.received: int | None = None
        self.should_kill = False

    @contextlib.contextmanager
    def handler_scope(self) -> Iterator[None]:
        """Handles the signals within a `with` block."""
        if threading.current_thread() is not threading.main_thread():
            yield  # Python delivers signals to the main thread only.
            return
        # Members are in separate sessions, so SIGHUP of a terminal reaches only the launcher.
        before = {number: signal.signal(number, self.receive) for number in exit_signals()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def receive(self, number: int, frame: FrameType | None = None) -> None:
        """Stores a signal."""
        if self.received is None:
            self.received = number
        elif number == signal.SIGINT:
            self.should_kill = True

    @property
    def forwarded_signal(self) -> int:
        """The signal to send to members: SIGINT for Ctrl-C, SIGTERM for all others."""
        return signal.SIGINT if self.received == signal.SIGINT else signal.SIGTERM


# The cursor of the terminal, which a live display hides.
_hidden = False


@contextlib.contextmanager
def hidden_cursor_scope() -> Iterator[None]:
    """Shows the cursor again if SIGTERM ends the process within a `with` block.

    The block itself hides and shows the cursor. Code that ends the process without leaving the
    block calls `show_cursor`.
    """
    global _hidden
    in_main = threading.current_thread() is threading.main_thread()
    handles = in_main and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if handles:
        signal.signal(signal.SIGTERM, _show_cursor_and_terminate)
    _hidden = True
    try:
        yield
    finally:
        _hidden = False
        if handles:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def show_cursor() -> None:
    """Shows the cursor if a display has hidden it."""
    if _hidden:
        with contextlib.suppress(OSError):
            os.write(2, b"\n\x1b[?25h")


def _show_cursor_and_terminate(number: int, frame: FrameType | None) -> None:
    show_cursor()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)
