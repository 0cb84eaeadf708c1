"""The members of the cluster of an attempt: their addresses on this machine, their processes."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from orbit_runner.config.schema.runtime import ROLES
from orbit_runner.config.schema.strategies import STRATEGIES
from orbit_runner.distribute.cluster.addresses import listening_socket
from orbit_runner.distribute.cluster.description import Cluster, Jobs, Member
from orbit_runner.distribute.cluster.tf_config import NAME
from orbit_runner.errors import RunnerError
from orbit_runner.launch.process import ROLE_TRAITS, Spec, visible_gpus

# Below the ephemeral ports of outgoing connections (from 32768 on Linux): between the choice of a
# port and the moment a member listens on it, TensorFlow is imported, and in those seconds any
# outgoing connection could take an ephemeral port.
_FIRST, _LAST = 15000, 29999
_TRIES = 1000
_CONNECT_SECONDS = 5.0


def check_host(host: str) -> None:
    """Raises `RunnerError` if processes of this machine cannot connect to each other at `host`."""
    try:
        with socket.create_server((host, 0)) as server:
            socket.create_connection(server.getsockname(), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        raise RunnerError(
            f"the members of a local cluster connect to {host}, which is not possible here: "
            f"{error.strerror or error}\nenable the loopback device: ip link set lo up",
            code="unreachable",
        ) from None


def free_ports(count: int) -> list[int]:
    """Returns ports that were free a moment ago; raises an error if there are not enough.

    The ports are random, so that two launchers at the same time rarely choose the same.
    """
    ports: list[int] = []
    with contextlib.ExitStack() as held:
        for port in random.sample(range(_FIRST, _LAST + 1), _TRIES):
            if len(ports) == count:
                return ports
            with contextlib.suppress(OSError):
                held.enter_context(listening_socket(port))
                ports.append(port)
    raise RunnerError(
        f"cannot find {count} free ports from {_FIRST} to {_LAST} on this machine",
        code="unreachable",
    )


HOST = "127.0.0.1"


@dataclasses.dataclass(frozen=True)
class Attempt:
    """The cluster of one attempt."""

    number: int  # from 1
    jobs: Jobs  # role to addresses of its members

    def clusters(self) -> Iterator[Cluster]:
        """Yields the cluster as each of its members sees it."""
        for role, addresses in self.jobs.items():
            for index, address in enumerate(addresses):
                yield Cluster(self.jobs, Member(role, index, address), NAME)


def make_attempt(number: int, counts: Mapping[str, int]) -> Attempt:
    """Returns an attempt with free ports; `counts` is role to number of processes."""
    ports = iter(free_ports(sum(counts.values())))
    addresses = {
        role: tuple(f"{HOST}:{next(ports)}" for _ in range(counts[role]))
        for role in ROLES
        if counts.get(role)
    }
    return Attempt(number, addresses)


# Returns the program and arguments of a member.
Command = Callable[[Cluster, Attempt], Sequence[str]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Members:
    """Describes the processes of each attempt."""

    strategy: str
    command: Command
    logs: Callable[[Attempt], Path]  # returns the directory of the logs
    gpus: int = 0  # per member; 0 for none, -1 for all
    stall_timeout: float = 0.0  # the longest time of a training step in seconds; 0 for no limit

    def specs(self, attempt: Attempt) -> list[Spec]:
        """Returns how to start each member of the cluster."""
        return [
            self._spec(cluster, number, attempt)
            for number, cluster in enumerate(attempt.clusters())
        ]

    def _spec(self, cluster: Cluster, number: int, attempt: Attempt) -> Spec:
        me = cluster.me
        return Spec(
            name=str(me),
            traits=ROLE_TRAITS[self.strategy][me.role],
            command=tuple(self.command(cluster, attempt)),
            environ=self._environ(cluster, number),
            log=self.logs(attempt) / f"{me.role}-{me.index}.log",
            results=cluster.is_chief,
            stall_timeout=self.stall_timeout,
        )

    def _environ(self, cluster: Cluster, number: int) -> Mapping[str, str]:
        added = {NAME: cluster.tf_config(), "PYTHONUNBUFFERED": "1"}
        if self.gpus > 0 and STRATEGIES[self.strategy].synchronous_workers:
            # Otherwise, each member would use the first GPUs.
            there = os.environ.get("CUDA_VISIBLE_DEVICES")
            added["CUDA_VISIBLE_DEVICES"] = visible_gpus(number, self.gpus, there)
        return {**os.environ, **added}
