"""A cluster as Slurm's `srun` describes it to each of its tasks.

The resolver of TensorFlow requires GPUs, and sorts hosts as text (`n10` before `n2`), but Slurm
numbers its tasks in the order of the list. The environment variables are documented in the manual
page of `srun`, under "Output environment variables".
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Mapping

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute.cluster.description import Cluster, ClusterError, check_cluster
from orbit_runner.distribute.cluster.roles import assign_roles

_FIRST_PORT = 20000
_PORTS = 10000
_MOST_PORTS = 65535
_NUMBER = re.compile(r"[0-9]{1,10}")


def is_slurm(environ: Mapping[str, str]) -> bool:
    """Returns whether this is one of several tasks of a step that `srun` started."""
    return "SLURM_PROCID" in environ and _read_number(environ, "SLURM_STEP_NUM_TASKS", "1") > 1


def from_slurm(runtime: RuntimeConfig, environ: Mapping[str, str]) -> Cluster:
    """Returns the cluster of a step; `assign_roles` assigns roles by rank.

    Raises `ClusterError` if a variable is missing or malformed.
    """
    hosts = expand_nodes(_require_variable(environ, "SLURM_STEP_NODELIST"))
    counts = expand_counts(_require_variable(environ, "SLURM_STEP_TASKS_PER_NODE"))
    if len(hosts) != len(counts):
        raise ClusterError(
            f"SLURM_STEP_NODELIST has {len(hosts)} nodes, "
            f"but SLURM_STEP_TASKS_PER_NODE has task counts for {len(counts)}",
            path=SOURCE,
        )
    port = _first_port(environ, max(counts))
    addresses = _addresses_by_rank(hosts, counts, port, environ.get("SLURM_DISTRIBUTION", "block"))
    members = assign_roles(runtime, addresses, SOURCE)
    rank = _read_number(environ, "SLURM_PROCID")
    if rank >= len(members):
        raise ClusterError(
            f"SLURM_PROCID is {rank}, allowed: 0 to {len(members) - 1} ({len(members)} tasks)",
            path=SOURCE,
        )
    jobs: dict[str, tuple[str, ...]] = {}
    for member in members:
        jobs[member.role] = (*jobs.get(member.role, ()), member.address)
    return check_cluster(jobs, members[rank].role, members[rank].index, SOURCE)


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


def _first_port(environ: Mapping[str, str], most: int) -> int:
    """Returns the first port of a node's `most` tasks, the same on all nodes and in all tasks."""
    # Jobs that share a node should not use the same port; tasks of one job know all its ports.
    job, step = (_read_number(environ, name, "0") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
    first = _FIRST_PORT + (job * 100 + step) % _PORTS
    if first + most > _MOST_PORTS:
        raise ClusterError(f"a node has {most} tasks, more than the number of ports", path=SOURCE)
    return first


def _addresses_by_rank(
    hosts: list[str], counts: list[int], first_port: int, order: str
) -> list[str]:
    kind = order.partition(":")[0].partition(",")[0]
    if kind not in ("block", "*", "cyclic"):
        raise ClusterError(
            f"tasks are distributed as {order[:60]!r}, allowed: block, cyclic "
            "(srun --distribution)",
            path=SOURCE,
        )
    slots = [(n, host) for host, count in zip(hosts, counts, strict=True) for n in range(count)]
    if kind == "cyclic":
        slots.sort(key=operator.itemgetter(0))
    return [f"{host}:{first_port + n}" for n, host in slots]


SOURCE = "Slurm"
# `n[01-03,7]-ib,gpu1`: commas inside brackets do not separate names.
_NAME = r"(?:[^,\[\]\s]|\[[0-9,-]+\])+"
_NAMES = re.compile(rf"{_NAME}(?:,{_NAME})*")
_BRACKETS = re.compile(r"\[([0-9,-]+)\]")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


def expand_nodes(text: str) -> list[str]:
    """Returns the nodes of a compressed list: n01, n02, n03, n7, gpu1 for `n[01-03,7],gpu1`.

    Raises `ClusterError` if the list is malformed.
    """
    if not _NAMES.fullmatch(text):
        raise ClusterError(
            f"got node list {text[:60]!r}, expected a list such as n[01-03,7],gpu1", path=SOURCE
        )
    return [node for name in re.findall(_NAME, text) for node in _expand(name)]


def _expand(name: str) -> Iterator[str]:
    """Yields nodes: n01, n02, n7 for `n[01-02,7]`; a range has the width of its first number."""
    match = _BRACKETS.search(name)
    if match is None:
        yield name
        return
    for part in match[1].split(","):
        numbers = _RANGE.fullmatch(part)
        low, high = (numbers[1], numbers[2] or numbers[1]) if numbers else ("1", "0")
        if int(low) > int(high):
            raise ClusterError(
                f"got nodes {name[:60]!r}, where {part[:60]!r} is not a valid range", path=SOURCE
            )
        for number in range(int(low), int(high) + 1):
            prefix = f"{name[: match.start()]}{number:0{len(low)}d}"
            yield from _expand(f"{prefix}{name[match.end() :]}")


def expand_counts(text: str) -> list[int]:
    """Returns the number of tasks of each node: [2, 2, 2, 1] for `2(x3),1`.

    Raises `ClusterError` if the text is malformed.
    """
    counts = []
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,6})(?:\(x([0-9]{1,6})\))?", part.strip())
        if match is None:
            raise ClusterError(
                f"got task counts {text[:60]!r}, expected a list such as 2(x3),1", path=SOURCE
            )
        counts += [int(match[1])] * int(match[2] or 1)
    return counts
