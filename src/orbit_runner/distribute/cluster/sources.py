"""Descriptions of a cluster: `TF_CONFIG`, and the settings `worker_hosts` and `remote_cluster`.

Kubernetes' Training Operator, Vertex AI and `runner launch` set `TF_CONFIG`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute.cluster.description import (
    Cluster,
    ClusterError,
    check_cluster,
    job_problems,
    raise_problems,
)

if TYPE_CHECKING:
    from orbit_runner.utils.types import JsonObject

NAME = "TF_CONFIG"


def from_tf_config(text: str) -> Cluster:
    """Returns the cluster that a value of `TF_CONFIG` describes.

    Raises `ClusterError` if the value is malformed or contradicts itself.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ClusterError(
            f"is not valid JSON: {error}\nit begins with: {text[:60]!r}", path=NAME
        ) from None
    if not isinstance(value, dict):
        raise ClusterError(f"got {text[:60]!r}, {_FORM}", path=NAME)
    for key in ("cluster", "task"):
        if not isinstance(value.get(key), dict):
            raise ClusterError(f"`{key}` is missing or not a mapping; {_FORM}", path=NAME)
    role = _parse_role(value["task"].get("type"))
    index = _parse_index(value["task"].get("index"))
    return check_cluster(_parse_jobs(value["cluster"]), role, index, NAME)


_FORM = 'expected {"cluster": {"worker": ["host:port", …]}, "task": {"type": "worker", "index": 0}}'
# What launchers called the chief before TensorFlow 2.
_OLD_NAMES = {"master": "chief"}


def _parse_jobs(cluster: JsonObject) -> dict[str, tuple[str, ...]]:
    jobs: dict[str, tuple[str, ...]] = {}
    for role, addresses in cluster.items():
        if not isinstance(addresses, list):
            raise ClusterError(
                f"cluster.{role}: got {addresses!r:.60}, expected a list of host:port", path=NAME
            )
        name = _OLD_NAMES.get(role, role)
        if addresses:
            jobs[name] = (*jobs.get(name, ()), *addresses)
    return jobs


def _parse_role(name: object) -> str:
    if not isinstance(name, str):
        raise ClusterError(f"task.type: got {name!r:.60}, expected the name of a role", path=NAME)
    return _OLD_NAMES.get(name, name)


def _parse_index(value: object) -> int:
    # Launchers written in shell pass a string.
    if isinstance(value, str) and re.fullmatch("[0-9]{1,9}", value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ClusterError(f"task.index: got {value!r:.60}, expected an integer", path=NAME)
    return value


def from_config(runtime: RuntimeConfig) -> Cluster:
    """Returns the cluster of `runtime.worker_hosts`; raises `ClusterError` if it is invalid."""
    workers = _hosts(runtime.worker_hosts or "")
    index = runtime.task_index
    if index < 0 and len(workers) > 1:
        raise ClusterError(
            f"is not set, but runtime.worker_hosts has {len(workers)} workers\n"
            f"set it on each worker: 0 to {len(workers) - 1}",
            path="runtime.task_index",
        )
    return check_cluster({"worker": workers}, "worker", max(index, 0), "runtime.worker_hosts")


def parse_remote_cluster(
    text: str, source: str = "runtime.remote_cluster"
) -> dict[str, tuple[str, ...]]:
    """Returns the addresses of each role in a text like `worker=a:2222,b:2222;ps=c:2222`.

    Raises `ClusterError` if the text is malformed, or has no worker or no parameter server.
    """
    jobs: dict[str, tuple[str, ...]] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        role, equals, hosts = part.partition("=")
        if not equals or role.strip() in jobs:
            raise ClusterError(
                f"got {part[:60]!r}, expected each role once, such as "
                "worker=a:2222,b:2222;ps=c:2222",
                path=source,
            )
        jobs[role.strip()] = _hosts(hosts)
    raise_problems(source, [*_remote_problems(jobs)])
    return jobs


def _remote_problems(jobs: dict[str, tuple[str, ...]]) -> Iterator[str]:
    for role in ("worker", "ps"):
        if not jobs.get(role):
            yield f"has no {role}"
    for role in jobs:
        if role in ("chief", "evaluator"):
            yield f"got the role {role}, which does not run a server\nallowed: worker, ps"
    if jobs.get("worker"):
        yield from job_problems(jobs)


def _hosts(text: str) -> tuple[str, ...]:
    return tuple(host.strip() for host in text.split(",") if host.strip())
