"""A cluster as Slurm's `srun` describes it to each of its tasks.

The resolver of TensorFlow requires GPUs, and sorts hosts as text (`n10` before `n2`), but Slurm
numbers its tasks in the order of the list. The environment variables are documented in the manual
page of `srun`, under "Output environment variables".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute.cluster.description import (
    Cluster,
    ClusterError,
    Member,
    check_cluster,
)

SOURCE = "Slurm"
_FIRST_PORT = 20000
_PORTS = 10000
# `n[01-03,7]-ib,gpu1`: commas inside brackets do not separate names.
_NAME = re.compile(r"(?:[^,\[]|\[[^\]]*\])+")
_BRACKETS = re.compile(r"\[([0-9,-]+)\]")
_COUNT = re.compile(r"([0-9]+)(?:\(x([0-9]+)\))?")
_NUMBER = re.compile(r"[0-9]{1,10}")


def is_slurm(environ: Mapping[str, str]) -> bool:
    """Returns whether this is one of several tasks of a step that `srun` started."""
    return "SLURM_PROCID" in environ and _read_number(environ, "SLURM_STEP_NUM_TASKS", "1") > 1


def from_slurm(runtime: RuntimeConfig, environ: Mapping[str, str]) -> Cluster:
    """Returns the cluster of a step; `_assign_roles` assigns roles by rank.

    Raises `ClusterError` if a variable is missing or not as expected.
    """
    hosts = expand_nodes(_require_variable(environ, "SLURM_STEP_NODELIST"))
    counts = expand_counts(_require_variable(environ, "SLURM_STEP_TASKS_PER_NODE"))
    rank = _read_number(environ, "SLURM_PROCID")
    if len(hosts) != len(counts) or rank >= sum(counts):
        raise ClusterError(
            f"SLURM_STEP_NODELIST has {len(hosts)} nodes, SLURM_STEP_TASKS_PER_NODE has "
            f"{sum(counts)} tasks on {len(counts)} nodes, and SLURM_PROCID is {rank}",
            path=SOURCE,
        )
    slots = [(n, host) for host, count in zip(hosts, counts, strict=True) for n in range(count)]
    order = environ.get("SLURM_DISTRIBUTION", "block")
    kind = order.partition(":")[0].partition(",")[0]
    if kind == "cyclic":
        slots.sort(key=lambda slot: slot[0])
    elif kind not in ("block", "*"):
        raise ClusterError(
            f"tasks are distributed as {order[:60]!r}, allowed: block, cyclic "
            "(srun --distribution)",
            path=SOURCE,
        )
    # Jobs that share a node should not use the same port; tasks of one job know all its ports.
    job, step = (_read_number(environ, name, "0") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
    port = _FIRST_PORT + (job * 100 + step) % _PORTS
    members = _assign_roles(runtime, [f"{host}:{port + n}" for n, host in slots])
    me = members[rank]
    jobs: dict[str, tuple[str, ...]] = {}
    for member in members:
        jobs[member.role] = (*jobs.get(member.role, ()), member.address)
    return check_cluster(jobs, me.role, me.index, SOURCE)


def _assign_roles(runtime: RuntimeConfig, addresses: Sequence[str]) -> list[Member]:
    """Returns the members of a cluster by rank; `addresses` are `host:port` by rank.

    The first rank is the chief, followed by the parameter servers, the workers and the evaluator.
    Raises `ClusterError` if there are too few processes.
    """
    servers = runtime.parameter_servers
    coordinators = 1 if servers else 0
    workers = len(addresses) - coordinators - servers - runtime.num_evaluators
    counts = {
        "chief": coordinators,
        "ps": servers,
        "worker": workers,
        "evaluator": runtime.num_evaluators,
    }
    if workers < 1:
        needed = ", ".join(f"{n} {role}" for role, n in counts.items() if n and role != "worker")
        raise ClusterError(
            f"got {len(addresses)} processes, too few for a worker in addition to {needed}",
            path=SOURCE,
        )
    places = [(role, index) for role, count in counts.items() for index in range(count)]
    return [Member(*place, address) for place, address in zip(places, addresses, strict=True)]


def _require_variable(environ: Mapping[str, str], name: str) -> str:
    if not environ.get(name):
        raise ClusterError(
            f"{name} is not set; start the tasks with `srun runner …`, "
            "or describe the cluster in TF_CONFIG",
            path=SOURCE,
        )
    return environ[name]


def _read_number(environ: Mapping[str, str], name: str, default: str = "") -> int:
    text = environ.get(name, default) or _require_variable(environ, name)
    if not _NUMBER.fullmatch(text):
        raise ClusterError(f"{name} is {text[:60]!r}, expected a number", path=SOURCE)
    return int(text)


def expand_nodes(text: str) -> list[str]:
    """Returns the nodes of a compressed list: n01, n02, n03, n7, gpu1 for `n[01-03,7],gpu1`."""
    return [node for name in _NAME.findall(text) for node in _expand(name)]


def _expand(name: str) -> Iterator[str]:
    """Yields nodes: n01, n02, n7 for `n[01-02,7]`; a range has the width of its first number."""
    match = _BRACKETS.search(name)
    if match is None:
        yield name
        return
    for part in match[1].split(","):
        low, _, high = part.partition("-")
        for number in range(int(low), int(high or low) + 1):
            prefix = f"{name[: match.start()]}{number:0{len(low)}d}"
            yield from _expand(f"{prefix}{name[match.end() :]}")


def expand_counts(text: str) -> list[int]:
    """Returns the number of tasks of each node: [2, 2, 2, 1] for `2(x3),1`."""
    counts = []
    for count, nodes in _COUNT.findall(text):
        counts += [int(count)] * int(nodes or 1)
    return counts
