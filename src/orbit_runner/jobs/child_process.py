"""Runs a command of the runner in a process of its own, and forwards signals to it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from types import FrameType

from orbit_runner import exit_codes
from orbit_runner.utils.signals import exit_signals


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
