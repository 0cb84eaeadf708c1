"""Finds the description of the cluster, in a fixed order, and checks it against the config."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.config.schema.strategies import STRATEGIES
from orbit_runner.distribute.cluster.description import Cluster, ClusterError, raise_problems
from orbit_runner.distribute.cluster.slurm import from_slurm, is_slurm
from orbit_runner.distribute.cluster.sources import (
    NAME,
    from_config,
    from_tf_config,
    parse_remote_cluster,
)

_MISSING = (
    "`{}` requires a cluster, but none is configured\n"
    "to try it on this machine, run `runner launch --workers=2 -- …`\n"
    "otherwise, set TF_CONFIG, or runtime.worker_hosts and task_index, on each member"
)


def resolve_cluster(runtime: RuntimeConfig, environ: Mapping[str, str]) -> Cluster | None:
    """Returns the cluster that this process is a member of; None if it runs alone.

    The first available source is used: `TF_CONFIG`, `runtime.worker_hosts`, Slurm. Slurm is
    considered only for strategies that need a cluster, because every job there has its environment
    variables. Raises `ClusterError` if the description is malformed, contradicts the config, or is
    missing.
    """
    remote_cluster(runtime)
    needed = runtime.traits.is_clustered and not runtime.remote_cluster
    text = environ.get(NAME, "").strip()
    # Some launchers set `{}` for a process that runs alone.
    if text not in ("", "{}") and not runtime.remote_cluster:
        cluster = from_tf_config(text)
    elif runtime.worker_hosts:
        cluster = from_config(runtime)
    elif needed and is_slurm(environ):
        cluster = from_slurm(runtime, environ)
    elif needed:
        raise ClusterError(
            _MISSING.format(runtime.distribution_strategy), path="runtime.distribution_strategy"
        )
    else:
        return None
    raise_problems(cluster.source, [*_find_contradictions(runtime, cluster)])
    return cluster


def _find_contradictions(runtime: RuntimeConfig, cluster: Cluster) -> Iterator[str]:
    strategy = runtime.distribution_strategy
    jobs = cluster.jobs
    trainers = len(cluster.trainers())
    if not runtime.traits.is_clustered:
        if cluster.me.role != "evaluator" and (trainers > 1 or jobs.get("ps")):
            described = ", ".join(f"{len(addresses)} × {role}" for role, addresses in jobs.items())
            clustered = [name for name, traits in STRATEGIES.items() if traits.is_clustered]
            yield (
                f"describes {described}, but runtime.distribution_strategy is `{strategy}`, "
                f"which runs in one process\nallowed: {', '.join(clustered)}"
            )
        return
    if runtime.traits.synchronous_workers and jobs.get("ps"):
        yield "describes parameter servers, which `multi_worker_mirrored` does not use"
    if runtime.traits.is_asynchronous:
        for role in ("chief", "worker", "ps"):
            if not jobs.get(role):
                yield f"describes no {role}, but `parameter_server` requires one"
    workers = len(jobs.get("worker", ())) if runtime.traits.is_asynchronous else trainers
    servers = len(jobs.get("ps", ()))
    for field, asked, there in (
        ("num_workers", runtime.num_workers, workers),
        ("num_parameter_servers", runtime.num_parameter_servers, servers),
    ):
        if asked and asked != there:
            yield f"runtime.{field} is {asked}, but the cluster has {there}"


def remote_cluster(runtime: RuntimeConfig) -> dict[str, tuple[str, ...]]:
    """Returns the servers that this process drives from outside, by role; {} if none are set.

    Raises `ClusterError` if the setting is malformed, or names no worker or no parameter server.
    """
    return parse_remote_cluster(runtime.remote_cluster) if runtime.remote_cluster else {}
