"""A cluster as SageMaker describes it to the containers of a training job.

The environment variables (`SM_HOSTS`, `SM_CURRENT_HOST`) are documented by the SageMaker Training
Toolkit, under "Environment variables".
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute.cluster.description import Cluster, ClusterError, check_cluster
from orbit_runner.distribute.cluster.roles import count_roles, place_members, role_of

SOURCE = "SageMaker"
_PORT = 2222


def is_sagemaker(environ: Mapping[str, str]) -> bool:
    """Returns whether this is one of several containers of a training job."""
    return "SM_HOSTS" in environ and len(_read_hosts(environ)) > 1


def from_sagemaker(runtime: RuntimeConfig, environ: Mapping[str, str]) -> Cluster:
    """Returns the cluster, with one process per host; `count_roles` assigns roles by rank.

    Raises `ClusterError` if a variable is missing or malformed.
    """
    hosts = _read_hosts(environ)
    me = environ.get("SM_CURRENT_HOST", "")
    if me not in hosts:
        raise ClusterError(f"SM_CURRENT_HOST is {me!r}, allowed: {', '.join(hosts)}", path=SOURCE)
    roles = count_roles(runtime, len(hosts), SOURCE)
    addresses = [f"{host}:{_PORT}" for host in hosts]
    role, index = role_of(roles, hosts.index(me))
    return check_cluster(
        place_members(roles, addresses), role, index, SOURCE, hosts_resolve_late=True
    )


def _read_hosts(environ: Mapping[str, str]) -> list[str]:
    text = environ.get("SM_HOSTS", "")
    try:
        hosts = json.loads(text)
    except (ValueError, RecursionError):
        hosts = None
    if not isinstance(hosts, list) or not all(isinstance(host, str) for host in hosts):
        raise ClusterError(
            f"SM_HOSTS is {text[:60]!r}, "
            'expected a JSON list of hosts, such as ["algo-1", "algo-2"]',
            path=SOURCE,
        )
    return sorted(hosts, key=_natural_sort_key)


def _natural_sort_key(host: str) -> tuple[str, int, str]:
    # All containers must agree on the ranks, and `algo-10` comes after `algo-2`.
    name, _, number = host.rpartition("-")
    return (name, int(number), "") if number.isdecimal() else (host, 0, "")
