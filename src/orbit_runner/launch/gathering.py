"""How the launchers of all machines agree on the cluster, attempt by attempt."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from orbit_runner.config.schema.cluster import ROLES
from orbit_runner.distribute.cluster.description import Jobs
from orbit_runner.launch.exit_status import Ending
from orbit_runner.launch.ports import free_ports

# Services that make batches are gathered like the members, of which they are none.
DATA = "data"


@dataclasses.dataclass(frozen=True)
class Gathered:
    """What all machines agreed on.

    Attributes:
        attempt: Its number, from 1.
        jobs: Role to the addresses of its members on all machines.
        first: Role to the index of this machine's first member of it; `DATA` is one here.
        counts: Role to the number of members on this machine; here too.
        shared: What the first machine decided for all.
        services: The addresses of the services on all machines that make batches.
    """

    attempt: int
    jobs: Jobs
    first: Mapping[str, int]
    counts: Mapping[str, int]
    shared: Mapping[str, Any]
    services: tuple[str, ...] = ()


class Gathering(Protocol):
    """The launchers of all machines, as one of them sees them."""

    def gather(self, stop: Callable[[], bool]) -> Gathered | Ending:
        """Waits for all machines; an ending where they do not come together, or `stop` is true."""

    def tell(self, ending: Ending) -> None:
        """Tells the others, once, that this attempt failed here; not what they told themselves."""

    def heard(self) -> Ending | None:
        """Returns news of another machine on which the attempt failed, each once."""

    def done(self) -> None:
        """Tells the others that training is done here."""

    @property
    def all_done(self) -> bool:
        """Whether training is done everywhere."""

    @property
    def over(self) -> Ending | None:
        """How another machine left for good, where not all was well."""

    @property
    def host(self) -> str:
        """What the others reach this machine by."""

    def close(self, ending: Ending | None) -> None:
        """Leaves for good; where not all is well, the others end as this one did."""


def addresses_for(host: str, counts: Mapping[str, int]) -> dict[str, list[str]]:
    """Chooses addresses for this machine's members.

    Args:
        host: What others reach this machine by.
        counts: Role, or `DATA`, to the number of members.

    Returns:
        The same to addresses.
    """
    ports = iter(free_ports(sum(counts.values())))
    name = f"[{host}]" if ":" in host else host
    return {
        role: [f"{name}:{next(ports)}" for _ in range(counts[role])]
        for role in (*ROLES, DATA)
        if counts.get(role)
    }


def merged(
    offers: Mapping[int, Mapping[str, list[str]]],
    node: int,
    attempt: int,
    shared: Mapping[str, Any],
) -> Gathered:
    """Puts the members of all machines together: indices go by the numbers of the machines.

    Args:
        offers: Number of the machine to role to addresses.
        node: The number of this machine.
        attempt: The number of the attempt.
        shared: What machine 0 decided.

    Returns:
        The cluster, as this machine sees it.
    """
    jobs: dict[str, tuple[str, ...]] = {}
    first: dict[str, int] = {}
    for number in sorted(offers):
        for role in (*ROLES, DATA):
            if number == node:
                first[role] = len(jobs.get(role, ()))
            if offers[number].get(role):
                jobs[role] = (*jobs.get(role, ()), *offers[number][role])
    counts = {role: len(there) for role, there in offers[node].items()}
    services = jobs.pop(DATA, ())
    return Gathered(attempt, jobs, first, counts, shared, services)


class OneMachine:
    """The gathering of a launcher that is alone: new ports at each attempt, and nobody to tell."""

    def __init__(self, counts: Mapping[str, int], shared: Mapping[str, Any]) -> None:
        """Agrees with itself.

        Args:
            counts: Role to the number of members.
            shared: What it decided.
        """
        self._counts, self._shared, self._attempt = counts, shared, 0
        self.all_done, self.host, self.over = False, "127.0.0.1", None

    def gather(self, stop: Callable[[], bool]) -> Gathered | Ending:
        """Chooses ports."""
        self.all_done = False
        self._attempt += 1
        return merged({0: addresses_for(self.host, self._counts)}, 0, self._attempt, self._shared)

    def tell(self, ending: Ending) -> None:
        """Tells nobody."""

    def heard(self) -> Ending | None:
        """Hears nothing."""
        return None

    def done(self) -> None:
        """Notes that training is done."""
        self.all_done = True

    def close(self, ending: Ending | None) -> None:
        """Leaves nothing open."""
