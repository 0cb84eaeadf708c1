"""Finds the description of the cluster, in a fixed order, and checks it against the config.

It is in `TF_CONFIG`, which Kubernetes' Training Operator, Vertex AI and `runner launch` set, in the
settings `worker_hosts` and `remote_cluster`, or in the environment variables of Slurm. All members
are started with the same experiment, which is adapted to the role of each.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.config.schema.strategies import STRATEGIES
from orbit_runner.config.serialize import to_yaml
from orbit_runner.distribute.cluster.description import (
    Cluster,
    ClusterError,
    check_cluster,
    job_problems,
    raise_problems,
)
from orbit_runner.distribute.cluster.slurm import from_slurm, is_slurm
from orbit_runner.errors import SettingError

if TYPE_CHECKING:
    from orbit_runner.utils.types import JsonObject

NAME = "TF_CONFIG"
EVALUATOR_MODE = "continuous_eval"
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
    for field, configured, actual in (
        ("num_workers", runtime.num_workers, workers),
        ("num_parameter_servers", runtime.num_parameter_servers, servers),
    ):
        if configured and configured != actual:
            yield f"runtime.{field} is {configured}, but the cluster has {actual}"


def remote_cluster(runtime: RuntimeConfig) -> dict[str, tuple[str, ...]]:
    """Returns the servers that this process drives from outside, by role; {} if none are set.

    Raises `ClusterError` if the setting is malformed, or names no worker or no parameter server.
    """
    return parse_remote_cluster(runtime.remote_cluster) if runtime.remote_cluster else {}


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


def adapt_to_role(
    config: ExperimentConfig, mode: str, cluster: Cluster | None
) -> tuple[ExperimentConfig, str]:
    """Returns the experiment and the mode that this member of a cluster runs.

    An evaluator evaluates each new checkpoint on its own; the others then only train. `cluster` is
    None if the process runs alone. Raises `SettingError` if the experiment cannot be divided in
    this way.
    """
    if cluster is None:
        return config, mode
    if cluster.me.role == "evaluator":
        runtime = config.runtime
        several = runtime.num_gpus not in (0, 1)
        own_runtime = runtime.replace(
            distribution_strategy="mirrored" if several else "one_device",
            all_reduce_alg=None,
        )
        return config.replace(runtime=own_runtime), EVALUATOR_MODE
    if not cluster.jobs.get("evaluator") or mode != "train_and_eval":
        return config, mode
    if config.trainer.early_stopping is not None:
        raise SettingError(
            "trainer.early_stopping",
            "is not supported with an evaluator, because the workers do not receive its results\n"
            "unset trainer.early_stopping, or remove the evaluator from the cluster",
            code="not-supported",
        )
    return config, "train"


def common_purpose(config: ExperimentConfig, mode: str) -> str:
    """Returns a text that is the same on all members that run the same experiment."""
    shared_config = config.replace(runtime=config.runtime.replace(task_index=-1))
    digest = hashlib.sha256(to_yaml(shared_config).encode()).hexdigest()
    return f"{mode} of {config.name or 'an experiment'}, config {digest[:12]}"
