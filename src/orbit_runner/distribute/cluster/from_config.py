"""A cluster that the config describes."""

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


def configured_jobs(runtime: RuntimeConfig) -> dict[str, tuple[str, ...]]:
    """Returns the addresses of each role that the config names; {} if it names none."""
    if runtime.worker_hosts:
        return {"worker": _hosts(runtime.worker_hosts)}
    return runtime.cluster.jobs()


def from_config(runtime: RuntimeConfig) -> Cluster:
    """Returns the cluster that the config describes; raises `ClusterError` if it is invalid."""
    source = "runtime.worker_hosts" if runtime.worker_hosts else "runtime.cluster"
    jobs = configured_jobs(runtime)
    role = runtime.task_type
    index = runtime.task_index
    if role is None:
        role = "worker" if "worker" in jobs else "chief"
    if index < 0 and len(jobs.get(role, ())) > 1:
        raise ClusterError(
            f"is not set, but {source} has {len(jobs[role])} members with the role {role}\n"
            f"set it on each member: 0 to {len(jobs[role]) - 1}",
            path="runtime.task_index",
        )
    return check_cluster(jobs, role, max(index, 0), source)


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
