"""How processes end, and which of them explains why the others ended."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Iterable

from orbit_runner import exit_codes

LOST = exit_codes.MEMBER_LOST
_EXIT_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_EXIT_SIGNAL_CODES = tuple(exit_codes.after_signal(number) for number in _EXIT_SIGNALS)


@dataclasses.dataclass(frozen=True)
class Ending:
    """How a process ended."""

    who: str  # name of the process
    status: int  # exit code, or minus the number of the signal that killed it
    words: str = ""  # message, in place of the default one

    @property
    def code(self) -> int:
        """The exit code as a shell reports it."""
        return self.status if self.status >= 0 else 128 - self.status

    @property
    def kind(self) -> str:
        """`done`, `left` (on request), `lost` (reports a lost member), `killed` or `failed`."""
        if self.status == 0:
            return "done"
        if self.code in _EXIT_SIGNAL_CODES:
            return "left"
        if self.code == LOST:
            return "lost"
        return "killed" if self.status < 0 else "failed"

    def __str__(self) -> str:
        if self.words:
            return self.words
        if self.kind == "left":
            return f"{self.who} was asked to exit ({signal_name(self.code - 128)})"
        if self.kind == "lost":
            return f"{self.who} reported that another member was lost (exit code {LOST})"
        if self.kind == "killed":
            return f"{self.who} was killed by {signal_name(-self.status)}"
        return f"{self.who} exited with code {self.status}"


def signal_name(number: int) -> str:
    """Returns the name of a signal, such as `SIGTERM`."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def sort_by_significance(endings: Iterable[Ending]) -> list[Ending]:
    """Returns endings of about the same time, those that explain the others first, `done` last.

    SIGKILL comes from outside, and an error or a request to exit has its own exit code. But
    TensorFlow may abort, and members report a loss, because another member was lost. The sort is
    stable.
    """
    return sorted(endings, key=_significance)


def _significance(ending: Ending) -> int:
    if ending.status == -signal.SIGKILL:
        return 0
    return ("failed", "left", "killed", "lost", "done").index(ending.kind) + 1
