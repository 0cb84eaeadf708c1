"""One attempt to run a cluster, with a free address on this machine for each process."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from orbit_runner.config.schema.runtime import ROLES
from orbit_runner.distribute.cluster.description import Cluster, Jobs, Member
from orbit_runner.distribute.cluster.tf_config import NAME
from orbit_runner.launch.ports import free_ports

# Data services get addresses as members do, but are not members of the cluster.
DATA = "data"
HOST = "127.0.0.1"


@dataclasses.dataclass(frozen=True)
class Attempt:
    """The cluster of one attempt."""

    number: int  # from 1
    jobs: Jobs  # role to addresses of its members
    services: tuple[str, ...] = ()  # addresses of the data services

    def clusters(self) -> Iterator[Cluster]:
        """Yields the cluster as each of its members sees it."""
        for role, addresses in self.jobs.items():
            for index, address in enumerate(addresses):
                yield Cluster(self.jobs, Member(role, index, address), NAME)


def make_attempt(number: int, counts: Mapping[str, int]) -> Attempt:
    """Returns an attempt with free ports; `counts` is role, or `DATA`, to number of processes."""
    ports = iter(free_ports(sum(counts.values())))
    addresses = {
        role: tuple(f"{HOST}:{next(ports)}" for _ in range(counts[role]))
        for role in (*ROLES, DATA)
        if counts.get(role)
    }
    services = addresses.pop(DATA, ())
    return Attempt(number, addresses, services)
