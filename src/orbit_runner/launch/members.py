"""The members of a cluster on this machine: their addresses, and how to start them."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator, Mapping

from orbit_runner.config.schema.runtime import ROLES
from orbit_runner.config.schema.strategies import STRATEGIES
from orbit_runner.distribute.cluster.addresses import listening_socket
from orbit_runner.distribute.cluster.description import Cluster, Member
from orbit_runner.distribute.cluster.sources import NAME
from orbit_runner.errors import RunnerError
from orbit_runner.launch import LAUNCHED

HOST = "127.0.0.1"
# The roles that run until the launcher ends them.
SERVERS = {"multi_worker_mirrored": (), "parameter_server": ("worker", "ps")}
# Below the ephemeral ports of outgoing connections (from 32768 on Linux): between the choice of a
# port and the moment a member listens on it, TensorFlow is imported, and in those seconds any
# outgoing connection could take an ephemeral port.
_FIRST, _LAST = 15000, 29999
_TRIES = 1000
_GPUS = "CUDA_VISIBLE_DEVICES"


def make_clusters(counts: Mapping[str, int]) -> Iterator[Cluster]:
    """Yields a cluster with free ports as each of its members sees it.

    `counts` is role to number of processes.
    """
    ports = iter(_free_ports(sum(counts.values())))
    jobs = {
        role: tuple(f"{HOST}:{next(ports)}" for _ in range(counts[role]))
        for role in ROLES
        if counts.get(role)
    }
    for role, addresses in jobs.items():
        for index, address in enumerate(addresses):
            yield Cluster(jobs, Member(role, index, address), NAME)


def _free_ports(count: int) -> list[int]:
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


def member_environ(cluster: Cluster, number: int, strategy: str, gpus: int) -> dict[str, str]:
    """Returns the environment of a member, the `number`th of all, which uses `gpus` GPUs."""
    added = {NAME: cluster.tf_config(), LAUNCHED: "1", "PYTHONUNBUFFERED": "1"}
    if gpus > 0 and STRATEGIES[strategy].synchronous_workers:
        # Otherwise, each member would use the first GPUs.
        everything = ",".join(map(str, range((number + 1) * gpus)))
        there = [name for name in os.environ.get(_GPUS, everything).split(",") if name]
        added[_GPUS] = ",".join(there[number * gpus : (number + 1) * gpus])
    return {**os.environ, **added}
