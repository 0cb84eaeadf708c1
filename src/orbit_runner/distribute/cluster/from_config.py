"""The workers of `runtime.worker_hosts`, and the servers of `runtime.remote_cluster`."""

from __future__ import annotations

from collections.abc import Iterator

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute.cluster.description import (
    Cluster,
    ClusterError,
    check_cluster,
    job_problems,
    raise_problems,
)


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
