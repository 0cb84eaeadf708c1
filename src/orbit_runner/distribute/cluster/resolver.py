"""Finds the description of the cluster, in a fixed order, and checks it against the config."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.config.schema.strategies import STRATEGIES
from orbit_runner.distribute.cluster import addresses
from orbit_runner.distribute.cluster.description import (
    Cluster,
    ClusterError,
    Member,
    raise_problems,
)
from orbit_runner.distribute.cluster.from_config import (
    configured_jobs,
    from_config,
    parse_remote_cluster,
)
from orbit_runner.distribute.cluster.sagemaker import from_sagemaker, is_sagemaker
from orbit_runner.distribute.cluster.slurm import from_slurm, is_slurm
from orbit_runner.distribute.cluster.tf_config import NAME, from_tf_config

Environ = Mapping[str, str]

_LOOKUP_SECONDS = 0.5
_SHOWN = 3


def resolve_cluster(runtime: RuntimeConfig, environ: Environ) -> Cluster | None:
    """Returns the cluster that this process is a member of; None if it runs alone.

    If `runtime.cluster_source` is `auto`, the first available source is used: `TF_CONFIG`, the
    config, Slurm, SageMaker. Slurm and SageMaker are considered only for strategies that need a
    cluster, because every job there has their environment variables. Raises `ClusterError` if the
    description is malformed, contradicts the config, or is missing.
    """
    remote_cluster(runtime)
    needed = runtime.traits.is_clustered and not runtime.remote_cluster
    read = _select_reader(runtime, environ, needed)
    cluster = read() if read is not None else None
    if cluster is None:
        if needed:
            reason = "none is configured" if runtime.cluster_source != "none" else _TURNED_OFF
            raise ClusterError(
                _MISSING.format(runtime.distribution_strategy, reason),
                path="runtime.distribution_strategy",
            )
        return None
    raise_problems(cluster.source, [*_find_contradictions(runtime, cluster)])
    return cluster


_TURNED_OFF = "runtime.cluster_source is `none`"
_MISSING = (
    "`{}` requires a cluster, but {}\n"
    "to try it on this machine, run `runner launch --workers=2 -- …`\n"
    "otherwise, set TF_CONFIG, or runtime.cluster with task_type and task_index, on each member"
)


def _select_reader(
    runtime: RuntimeConfig, environ: Environ, needed: bool
) -> Callable[[], Cluster] | None:
    readers: dict[str, Callable[[], Cluster]] = {
        "tf_config": lambda: from_tf_config(environ.get(NAME, "")),
        "config": lambda: from_config(runtime),
        "slurm": lambda: from_slurm(runtime, environ),
        "sagemaker": lambda: from_sagemaker(runtime, environ),
    }
    there = {
        # Some launchers set `{}` for a process that runs alone.
        "tf_config": environ.get(NAME, "").strip() not in ("", "{}") and not runtime.remote_cluster,
        "config": bool(configured_jobs(runtime)),
        "slurm": needed and is_slurm(environ),
        "sagemaker": needed and is_sagemaker(environ),
    }
    source = runtime.cluster_source
    if source == "auto":
        source = next((name for name, is_present in there.items() if is_present), "none")
    elif source == "tf_config" and not there[source]:
        raise ClusterError(f"is `tf_config`, but {NAME} is not set", path="runtime.cluster_source")
    elif source == "config" and not there[source]:
        raise ClusterError(
            "is `config`, but runtime.cluster is empty", path="runtime.cluster_source"
        )
    return readers.get(source)


def _find_contradictions(runtime: RuntimeConfig, cluster: Cluster) -> Iterator[str]:
    strategy = runtime.distribution_strategy
    jobs = cluster.jobs
    trainers = len(cluster.trainers())
    if not runtime.traits.is_clustered:
        if cluster.me.role != "evaluator" and (trainers > 1 or jobs.get("ps")):
            clustered = [name for name, traits in STRATEGIES.items() if traits.is_clustered]
            yield (
                f"describes {_describe(jobs)}, but runtime.distribution_strategy is `{strategy}`, "
                f"which runs in one process\nallowed: {', '.join(clustered)}"
            )
        return
    if runtime.traits.synchronous_workers and jobs.get("ps"):
        yield "describes parameter servers, which `multi_worker_mirrored` does not use"
    if runtime.traits.is_asynchronous:
        for role in ("chief", "worker", "ps"):
            if not jobs.get(role):
                yield f"describes no {role}, but `parameter_server` requires one"
    yield from _count_problems(runtime, cluster)


def _count_problems(runtime: RuntimeConfig, cluster: Cluster) -> Iterator[str]:
    workers = len(
        cluster.jobs.get("worker", ()) if runtime.traits.is_asynchronous else cluster.trainers()
    )
    servers = len(cluster.jobs.get("ps", ()))
    for field, asked, there in (
        ("num_workers", runtime.num_workers, workers),
        ("num_parameter_servers", runtime.num_parameter_servers, servers),
    ):
        if asked and asked != there:
            yield f"runtime.{field} is {asked}, but the cluster has {there}"


def _describe(jobs: Mapping[str, tuple[str, ...]]) -> str:
    return ", ".join(f"{len(addresses)} × {role}" for role, addresses in jobs.items())


def remote_cluster(runtime: RuntimeConfig) -> dict[str, tuple[str, ...]]:
    """Returns the servers that this process drives from outside, by role; {} if none are set.

    Raises `ClusterError` if the setting is malformed, or names no worker or no parameter server.
    """
    if not runtime.remote_cluster:
        return {}
    return parse_remote_cluster(runtime.remote_cluster)


def reach_problems(cluster: Cluster) -> Iterator[str]:
    """Yields which hosts are not known, and whether this process's own port is in use."""
    if not cluster.hosts_resolve_late:
        others = [*_other_members(cluster)]
        unknown = addresses.find_unknown_hosts((m.address for m in others), _LOOKUP_SECONDS)
        for host, reason in [*unknown.items()][:_SHOWN]:
            who = next(m for m in others if addresses.split_address(m.address)[0] == host)
            yield f"{cluster.source}: {who}: cannot resolve the host {host!r}: {reason}"
        if unknown and len(unknown) > _SHOWN:
            yield f"{cluster.source}: … and {len(unknown) - _SHOWN} more hosts cannot be resolved"
    if cluster.me.address:
        problem = addresses.port_problem(cluster.me.address)
        if problem:
            yield f"{cluster.source}: {cluster.me}: {problem}"


def _other_members(cluster: Cluster) -> Iterator[Member]:
    # An evaluator only reads checkpoints, and communicates with no other member.
    if cluster.me.role != "evaluator":
        for member in cluster.members():
            if member.role != "evaluator" and member.address != cluster.me.address:
                yield member
