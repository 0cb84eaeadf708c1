"""Checks in a thread for a notice of preemption: a file that appears, or a command's exit code."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Callable, Iterator

from orbit_runner.config.schema.runtime import PreemptionConfig
from orbit_runner.utils.log import note

# A command that takes longer is killed, and counts as no notice.
_COMMAND_SECONDS = 10.0
# The exit codes of a shell that did not run the command.
_NOT_RUN = (126, 127)


class PreemptionWatch:
    """Calls `notify` once, from a thread, when the platform gives notice.

    The argument describes the notice, such as `the file /run/preempted exists`.
    """

    def __init__(self, preemption: PreemptionConfig, notify: Callable[[str], None]) -> None:
        self._preemption, self._notify = preemption, notify
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
            found = self._notice()
            if found:
                self._notify(found)
                return
            end.wait(self._preemption.poll_interval)

    def _notice(self) -> str:
        file, command = self._preemption.file, self._preemption.command
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
