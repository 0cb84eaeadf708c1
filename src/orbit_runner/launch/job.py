"""What the supervising loop and its helpers share."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from orbit_runner.launch.exit_status import Ending
from orbit_runner.launch.log_multiplexer import Screen
from orbit_runner.launch.process import Process
from orbit_runner.launch.process_pool import Crew
from orbit_runner.launch.roles import Part
from orbit_runner.launch.signals import Signals

_SHORT_SECONDS = 5.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """How often and how long.

    Attributes:
        restarts: How often lost members are replaced.
        grace: Seconds that members have to save and leave.
        settle: Seconds in which members notice that another is lost.
    """

    restarts: int = 3
    grace: float = 30.0
    settle: float = 30.0


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What an attempt came to.

    Attributes:
        code: The exit code, if that was the last attempt.
        cause: What ended it; None where training is done.
        again: Whether another attempt is worth it.
    """

    code: int
    cause: Ending | None = None
    again: bool = False


class Job:
    """The processes of this machine, and all that decides about them.

    Attributes:
        crew: The processes.
        screen: Where lines go.
        signals: What the launcher was sent.
        limits: How often and how long.
        restarts: How many lost members, or groups, were replaced so far.
    """

    def __init__(self, screen: Screen, signals: Signals, limits: Limits) -> None:
        """Starts nothing.

        Args:
            screen: Where lines go.
            signals: What the launcher was sent.
            limits: How often and how long.
        """
        self.crew = Crew(screen)
        self.screen, self.signals, self.limits = screen, signals, limits
        self.restarts = 0

    @property
    def may_restart(self) -> bool:
        """Whether a lost member may still be replaced."""
        return self.restarts < self.limits.restarts

    def count_restart(self) -> str:
        """Counts a restart, and returns the words for it."""
        self.restarts += 1
        return f"({self.restarts} of {self.limits.restarts})"

    def was_asked_to_stop(self) -> bool:
        """Returns whether the launcher was sent a signal."""
        return self.signals.received is not None

    def end(self, processes: Sequence[Process], seconds: float = _SHORT_SECONDS) -> None:
        """Ends processes that nobody waits for any more.

        Args:
            processes: The processes.
            seconds: How long they may take, within the time of grace.
        """
        seconds = min(seconds, self.limits.grace)
        self.crew.end(processes, seconds, lambda: self.signals.at_once)


def leads(part: Part) -> bool:
    """Returns whether training waits for it."""
    return part.leads


def works(part: Part) -> bool:
    """Returns whether it leaves by itself, in the end or when asked."""
    return not part.serves


def is_grouped(part: Part) -> bool:
    """Returns whether it starts and ends with the others."""
    return part.grouped
