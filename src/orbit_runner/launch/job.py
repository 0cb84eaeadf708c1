"""The state that the supervising loop and its helpers share."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from orbit_runner.launch.elastic import Elastic
from orbit_runner.launch.exit_status import Ending
from orbit_runner.launch.log_multiplexer import LogMultiplexer
from orbit_runner.launch.process import Process
from orbit_runner.launch.process_pool import ProcessPool
from orbit_runner.launch.roles import RoleTraits
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
        self,
        output: LogMultiplexer,
        signals: Signals,
        limits: Limits,
        elastic: Elastic | None = None,
    ) -> None:
        self.pool = ProcessPool(output)
        self.output, self.signals, self.limits = output, signals, limits
        self.restarts = 0
        self.elastic = elastic  # None if the number of workers is fixed

    @property
    def can_restart(self) -> bool:
        """Whether a lost member may still be replaced."""
        return self.restarts < self.limits.restarts

    def can_regroup(self, cause: Ending) -> bool:
        """Returns whether another attempt may follow one that ended by `cause`."""
        elastic = self._elastic_for(cause)
        return self.can_restart if elastic is None else elastic.can_continue

    def prepare_attempt(self, cause: Ending) -> str:
        """Prepares another attempt after a loss, and returns a message about what follows."""
        elastic = self._elastic_for(cause)
        if elastic is not None:
            return elastic.record_loss()
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
        self.pool.end(processes, seconds, lambda: self.signals.should_kill)


def is_leader(traits: RoleTraits) -> bool:
    """Returns whether training waits for this kind of process."""
    return traits.leads


def can_exit(traits: RoleTraits) -> bool:
    """Returns whether this kind of process exits without being killed, at the end or on request."""
    return not traits.serves


def is_grouped(traits: RoleTraits) -> bool:
    """Returns whether this kind of process starts and ends together with the others."""
    return traits.grouped
