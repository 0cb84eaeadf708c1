"""The state that the supervising loop and its helpers share."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from orbit_runner.launch.elastic import Elastic
from orbit_runner.launch.exit_status import Ending
from orbit_runner.launch.log_multiplexer import Screen
from orbit_runner.launch.process import Process
from orbit_runner.launch.process_pool import Crew
from orbit_runner.launch.roles import Part
from orbit_runner.launch.signals import Signals

_SHORT_SECONDS = 5.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of restarts and waiting times."""

    restarts: int = 3  # how often lost members are replaced
    grace: float = 30.0  # seconds for members to save and exit
    settle: float = 30.0  # seconds for members to notice that another is lost


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The result of an attempt."""

    code: int  # exit code, if this was the last attempt
    cause: Ending | None = None  # what ended it; None if training is done or workers join
    again: bool = False  # whether to start another attempt


class Job:
    """The processes of this machine, and the state of their supervision."""

    def __init__(
        self, screen: Screen, signals: Signals, limits: Limits, elastic: Elastic | None = None
    ) -> None:
        self.crew = Crew(screen)
        self.screen, self.signals, self.limits = screen, signals, limits
        self.restarts = 0
        self.elastic = elastic  # None if the number of workers is fixed

    @property
    def may_restart(self) -> bool:
        """Whether a lost member may still be replaced."""
        return self.restarts < self.limits.restarts

    def may_regroup(self, cause: Ending) -> bool:
        """Returns whether another attempt may follow one that ended by `cause`."""
        elastic = self._elastic_for(cause)
        return self.may_restart if elastic is None else elastic.may_go_on

    def next_attempt(self, cause: Ending) -> str:
        """Prepares another attempt after a loss, and returns what follows, for a message."""
        elastic = self._elastic_for(cause)
        if elastic is not None:
            return elastic.lose()
        return f"restarting all members from the last checkpoint {self.count_restart()}"

    def _elastic_for(self, cause: Ending) -> Elastic | None:
        # Fewer workers would not help against the loss of a data service.
        return self.elastic if cause.who.startswith("worker ") else None

    def count_restart(self) -> str:
        """Counts a restart, and returns a text such as `(1 of 3)`."""
        self.restarts += 1
        return f"({self.restarts} of {self.limits.restarts})"

    def was_asked_to_stop(self) -> bool:
        """Returns whether the launcher received a signal."""
        return self.signals.received is not None

    def end(self, processes: Sequence[Process], seconds: float = _SHORT_SECONDS) -> None:
        """Ends processes whose exit codes do not matter, within `seconds` and the grace period."""
        seconds = min(seconds, self.limits.grace)
        self.crew.end(processes, seconds, lambda: self.signals.at_once)


def leads(part: Part) -> bool:
    """Returns whether training waits for this kind of process."""
    return part.leads


def works(part: Part) -> bool:
    """Returns whether this kind of process exits without being killed, at the end or on request."""
    return not part.serves


def is_grouped(part: Part) -> bool:
    """Returns whether this kind of process starts and ends together with the others."""
    return part.grouped
