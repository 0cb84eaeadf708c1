"""Handles Ctrl-C, SIGTERM, SIGHUP and notices of preemption: saves and exits with a code."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from orbit_runner import exit_codes
from orbit_runner.config.schema.runtime import PreemptionConfig
from orbit_runner.utils.log import note
from orbit_runner.utils.signals import exit_signals

# A command that takes longer is killed, and counts as no notice.
_COMMAND_SECONDS = 10.0
# The exit codes of a shell that did not run the command.
_NOT_RUN = (126, 127)


class PreemptionWatch:
    """Calls `notify` once, from a thread, when the platform gives notice.

    The argument describes the notice, such as `the file /run/preempted exists`.
    """

    def __init__(self, preemption: PreemptionConfig, notify: Callable[[str], None]) -> None:
        self._preemption = preemption
        self._notify = notify
        self._warned = False

    @contextlib.contextmanager
    def running_scope(self) -> Iterator[None]:
        """Checks during a `with` block; starts no thread if there is nothing to check."""
        if not (self._preemption.file or self._preemption.command):
            yield
            return
        end = threading.Event()
        threading.Thread(target=self._poll, args=(end,), name="preemption", daemon=True).start()
        try:
            yield
        finally:
            end.set()

    def _poll(self, end: threading.Event) -> None:
        while not end.is_set():
            notice = self._notice()
            if notice:
                self._notify(notice)
                return
            end.wait(self._preemption.poll_interval)

    def _notice(self) -> str:
        file = self._preemption.file
        command = self._preemption.command
        if file and os.path.lexists(os.path.expanduser(file)):
            return f"the file {file} exists"
        if command and self._exit_code(command) == 0:
            return "runtime.preemption.command succeeded"
        return ""

    def _exit_code(self, command: str) -> int:
        try:
            code = subprocess.run(
                command,
                shell=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_COMMAND_SECONDS,
                check=False,
                start_new_session=True,  # Ctrl-C must not reach the command.
            ).returncode
        except (OSError, subprocess.TimeoutExpired) as error:
            self._warn(str(error))
            return 1
        if code in _NOT_RUN:
            self._warn(f"the shell cannot run it (exit code {code})")
        return code

    def _warn(self, problem: str) -> None:
        if not self._warned:
            note(f"warning: runtime.preemption.command: {problem}; a notice would not be seen")
        self._warned = True


# Must be the same on every worker, because the workers add up how many got each signal.
SIGNALS = (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))
# Platforms may send the same request to a process and to its group. Closing a terminal does. And
# `runner sweep` and `runner launch` forward theirs, on a busy machine some seconds later.
_SAME_REQUEST_SECONDS = 5.0
_UNSAVED = "nothing has been saved since the last checkpoint"


class LeftAtOnce(KeyboardInterrupt):
    """Raised at a second signal, anywhere in the main thread; like Ctrl-C, not an `Exception`."""

    def __init__(self, number: int) -> None:
        super().__init__(f"{signal.Signals(number).name} again, {_UNSAVED}")
        self.exit_code = exit_codes.after_signal(number)


class SignalGuard:
    """Stores a signal until the current piece of a loop is finished.

    SIGTERM is included only if `on_terminate` is true. A notice of preemption counts as SIGTERM. A
    second Ctrl-C raises `KeyboardInterrupt` immediately, and a second signal of another kind
    `LeftAtOnce`, unless it follows the first within five seconds.

    Attributes:
        received: The number of the first signal, or None.
        notice: The notice of preemption that came first, or "".
    """

    def __init__(
        self,
        *,
        on_terminate: bool,
        preemption: PreemptionConfig | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._on_terminate = on_terminate
        self._preemption = preemption or PreemptionConfig()
        self._clock = clock
        self._first: float | None = None  # when the first signal came; notices do not count
        self.received: int | None = None
        self.notice = ""

    @contextlib.contextmanager
    def installed_scope(self) -> Iterator[None]:
        """Catches the signals in a `with` block; outside the main thread, only notices."""
        with PreemptionWatch(self._preemption, self._receive_notice).running_scope():
            if threading.current_thread() is not threading.main_thread():
                yield  # Python delivers signals to the main thread only.
                return
            before = {number: signal.signal(number, do) for number, do in self._handlers().items()}
            try:
                yield
            finally:
                for number, handler in before.items():
                    signal.signal(number, self._handler_after_scope(number, handler))

    def _handler_after_scope(self, number: int, before: Any) -> Any:
        """Returns the handler that replaces that of the scope; `before` is that before the scope.

        By default, a signal ends the process. After the first signal, the second of the same
        request must not do so before the process has said that it has saved.
        """
        if self._first is None or before != signal.SIG_DFL or number == signal.SIGINT:
            return before

        def handle(number: int, frame: FrameType | None) -> None:
            if not self._is_same_request():
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)

        return handle

    def _handlers(self) -> dict[int, Callable[[int, FrameType | None], None]]:
        handlers: dict[int, Callable[[int, FrameType | None], None]] = {}
        for name in self._preemption.signals:
            if hasattr(signal, name):  # Windows has few of them.
                handlers[int(getattr(signal, name))] = self._receive_notice_signal
        for number in exit_signals(terminate=self._on_terminate):
            handlers[number] = self._receive
        return handlers

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self._first is None:
            self._first = self._clock()
            self.received = self.received or number
        elif number == signal.SIGINT:
            raise KeyboardInterrupt(_UNSAVED)
        elif not self._is_same_request():
            raise LeftAtOnce(number)

    def _is_same_request(self) -> bool:
        assert self._first is not None
        return self._clock() - self._first < _SAME_REQUEST_SECONDS

    def _receive_notice_signal(self, number: int, frame: FrameType | None) -> None:
        self._receive_notice(signal.Signals(number).name)

    def _receive_notice(self, notice: str) -> None:
        if self.received is None:
            self.notice = notice
            self.received = int(signal.SIGTERM)
