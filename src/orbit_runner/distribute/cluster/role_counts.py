"""Assigns roles to processes of which only the number and the addresses are known."""

from __future__ import annotations

from collections.abc import Sequence

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute.cluster.description import ClusterError

RoleCounts = dict[str, int]


def count_roles(runtime: RuntimeConfig, processes: int, source: str) -> RoleCounts:
    """Returns the number of members of each role, in the order of ranks.

    The first rank is the chief, followed by the parameter servers, the workers and the evaluator.
    `source` is what started the processes, for messages. Raises `ClusterError` if there are too few
    processes.
    """
    servers = runtime.parameter_servers
    coordinators = 1 if servers else 0
    workers = processes - coordinators - servers - runtime.num_evaluators
    counts = {
        "chief": coordinators,
        "ps": servers,
        "worker": workers,
        "evaluator": runtime.num_evaluators,
    }
    if workers < 1:
        needed = ", ".join(f"{n} {role}" for role, n in counts.items() if n and role != "worker")
        raise ClusterError(
            f"{source}: got {processes} processes, too few for a worker in addition to {needed}"
        )
    return {role: count for role, count in counts.items() if count}


def place_members(counts: RoleCounts, addresses: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Returns the addresses of each role; `addresses` are `host:port` by rank."""
    left, jobs = list(addresses), {}
    for role, count in counts.items():
        jobs[role], left = tuple(left[:count]), left[count:]
    return jobs


def role_of(counts: RoleCounts, rank: int) -> tuple[str, int]:
    """Returns the role and the index of the process with a rank."""
    for role, count in counts.items():
        if rank < count:
            return role, rank
        rank -= count
    raise ValueError(f"rank {rank} is beyond {counts}")
