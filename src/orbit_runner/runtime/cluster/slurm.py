"""A cluster as Slurm's `srun` describes it to each of its tasks.

TensorFlow has a resolver for it, which sorts hosts as texts (`n10` before `n2`) while Slurm numbers
its tasks in the order of the list, and which needs GPUs. Names and meanings of the variables are
those of the manual page of `srun`, "Output environment variables".
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping

from orbit_runner.config.runtime import RuntimeConfig
from orbit_runner.runtime.cluster.description import Cluster, ClusterError, checked
from orbit_runner.runtime.cluster.layout import layout, placed, role_of

SOURCE = "Slurm"
_FIRST_PORT, _PORTS = 20000, 10000
# `n[01-03,7]-ib,gpu1`: commas inside brackets do not part names.
_NAMES = re.compile(r"(?:[^,\[\]]|\[[^\]]*\])+")
_BRACKETS = re.compile(r"\[([^\]]*)\]")


def is_slurm(environ: Mapping[str, str]) -> bool:
    """Returns whether this is one of several tasks of a step that `srun` started.

    Args:
        environ: The environment.
    """
    return "SLURM_PROCID" in environ and int(environ.get("SLURM_STEP_NUM_TASKS", "1")) > 1


def from_slurm(runtime: RuntimeConfig, environ: Mapping[str, str]) -> Cluster:
    """Makes the cluster of a step; ranks are roles by `layout`.

    Args:
        runtime: Says how many parameter servers and evaluators there are.
        environ: The environment of one task.

    Returns:
        The cluster.

    Raises:
        ClusterError: A variable is missing or malformed.
    """
    hosts = expand_nodes(_needed(environ, "SLURM_STEP_NODELIST"))
    counts = expand_counts(_needed(environ, "SLURM_STEP_TASKS_PER_NODE"))
    if len(hosts) != len(counts):
        raise ClusterError(f"{SOURCE}: {len(hosts)} nodes, but task counts of {len(counts)}")
    first = _first_port(environ)
    addresses = _by_rank(hosts, counts, first, environ.get("SLURM_DISTRIBUTION", "block"))
    roles = layout(runtime, len(addresses), SOURCE)
    rank = int(_needed(environ, "SLURM_PROCID"))
    if rank >= len(addresses):
        raise ClusterError(f"{SOURCE}: SLURM_PROCID is {rank}, of {len(addresses)} tasks")
    return checked(placed(roles, addresses), *role_of(roles, rank), SOURCE)


def _needed(environ: Mapping[str, str], name: str) -> str:
    if not environ.get(name):
        raise ClusterError(
            f"{SOURCE}: {name} is not set; start the tasks with `srun runner …`, "
            "or describe the cluster otherwise (runtime.cluster_source)"
        )
    return environ[name]


def _first_port(environ: Mapping[str, str]) -> int:
    # Jobs that share a node must not meet on a port; those of one job know each other's.
    reserved = environ.get("SLURM_STEP_RESV_PORTS", "")
    if reserved:
        return int(reserved.partition("-")[0].partition(",")[0])
    step = int(environ.get("SLURM_STEP_ID", "0"))
    return _FIRST_PORT + (int(environ.get("SLURM_JOB_ID", "0")) * 100 + step) % _PORTS


def _by_rank(hosts: list[str], counts: list[int], first: int, order: str) -> list[str]:
    slots = [
        [f"{host}:{first + i}" for i in range(n)] for host, n in zip(hosts, counts, strict=True)
    ]
    kind = order.partition(":")[0].partition(",")[0]
    if kind == "cyclic":
        rounds = itertools.zip_longest(*slots)
        return [address for turn in rounds for address in turn if address is not None]
    if kind != "block":
        raise ClusterError(
            f"{SOURCE}: tasks are distributed as {order!r}, allowed: block, cyclic "
            "(srun --distribution)"
        )
    return [address for node in slots for address in node]


def expand_nodes(text: str) -> list[str]:
    """Lists the nodes of a compressed list.

    Args:
        text: Such as `n[01-03,7],gpu1`.

    Returns:
        `n01 n02 n03 n7 gpu1`, in that order.

    Raises:
        ClusterError: It is malformed.
    """
    if text.count("[") != text.count("]"):
        raise ClusterError(f"{SOURCE}: got the list of nodes {text!r}, a bracket is missing")
    return [node for name in _NAMES.findall(text) for node in _expanded(name)]


def _expanded(name: str) -> Iterator[str]:
    found = _BRACKETS.search(name)
    if found is None:
        yield name
        return
    for part in found[1].split(","):
        low, _, high = part.partition("-")
        if not low.isdecimal() or not (high or low).isdecimal():
            raise ClusterError(f"{SOURCE}: got the range {part!r} of nodes in {name!r}")
        for number in range(int(low), int(high or low) + 1):
            yield from _expanded(
                f"{name[: found.start()]}{number:0{len(low)}d}{name[found.end() :]}"
            )


def expand_counts(text: str) -> list[int]:
    """Lists the numbers of tasks of each node.

    Args:
        text: Such as `2(x3),1`.

    Returns:
        `[2, 2, 2, 1]`.

    Raises:
        ClusterError: It is malformed.
    """
    counts = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part.strip())
        if match is None:
            raise ClusterError(f"{SOURCE}: got the numbers of tasks {text!r}, such as 2(x3),1")
        counts += [int(match[1])] * int(match[2] or 1)
    return counts
