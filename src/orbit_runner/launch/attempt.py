"""One attempt at running a cluster: a free address on this machine for each member."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from orbit_runner.config.schema.runtime import ROLES
from orbit_runner.distribute.cluster.description import Cluster, Jobs, Member
from orbit_runner.distribute.cluster.tf_config import NAME
from orbit_runner.launch.ports import free_ports

# Services that make batches get addresses like the members, of which they are none.
DATA = "data"
HOST = "127.0.0.1"


@dataclasses.dataclass(frozen=True)
class Attempt:
    """The cluster of one attempt.

    Attributes:
        number: The number of the attempt, from 1.
        jobs: Role to the addresses of its members.
        services: The addresses of the services that make batches.
    """

    number: int
    jobs: Jobs
    services: tuple[str, ...] = ()

    def clusters(self) -> Iterator[Cluster]:
        """Yields the cluster as each of its members sees it."""
        for role, addresses in self.jobs.items():
            for index, address in enumerate(addresses):
                yield Cluster(self.jobs, Member(role, index, address), NAME)


def make_attempt(number: int, counts: Mapping[str, int]) -> Attempt:
    """Chooses free ports for an attempt.

    Args:
        number: The number of the attempt, from 1.
        counts: Role, or `DATA`, to the number of members.
    """
    ports = iter(free_ports(sum(counts.values())))
    addresses = {
        role: tuple(f"{HOST}:{next(ports)}" for _ in range(counts[role]))
        for role in (*ROLES, DATA)
        if counts.get(role)
    }
    services = addresses.pop(DATA, ())
    return Attempt(number, addresses, services)
