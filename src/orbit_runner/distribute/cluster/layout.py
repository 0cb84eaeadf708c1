"""Which role each of a row of processes has, where only their number and addresses are given."""

from __future__ import annotations

from collections.abc import Sequence

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute.cluster.description import ClusterError

Layout = dict[str, int]


def layout(runtime: RuntimeConfig, processes: int, source: str) -> Layout:
    """Shares out roles by rank: the chief first, then parameter servers, workers, the evaluator.

    Args:
        runtime: Says how many parameter servers and evaluators there are.
        processes: How many processes there are.
        source: What started them, for messages.

    Returns:
        Role to its number of members, in the order of ranks.

    Raises:
        ClusterError: There are too few.
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
            f"{source}: got {processes} processes, which leaves no worker beside {needed}"
        )
    return {role: count for role, count in counts.items() if count}


def place_members(counts: Layout, addresses: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Gives each role its addresses.

    Args:
        counts: What `layout` returned.
        addresses: `host:port` of each process, by rank.

    Returns:
        Role to addresses.
    """
    left, jobs = list(addresses), {}
    for role, count in counts.items():
        jobs[role], left = tuple(left[:count]), left[count:]
    return jobs


def role_of(counts: Layout, rank: int) -> tuple[str, int]:
    """Returns role and index of a process.

    Args:
        counts: What `layout` returned.
        rank: The number of the process.
    """
    for role, count in counts.items():
        if rank < count:
            return role, rank
        rank -= count
    raise ValueError(f"rank {rank} is beyond {counts}")
