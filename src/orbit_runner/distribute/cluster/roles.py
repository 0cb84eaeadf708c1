"""The roles of processes: who has which, and what the experiment is for each of them.

Slurm tells only the number and the addresses of processes. All members are started
with the same experiment, which is adapted to the role of each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.config.serialize import to_yaml
from orbit_runner.distribute.cluster.description import Cluster, ClusterError
from orbit_runner.errors import SettingError

EVALUATOR_MODE = "continuous_eval"


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
        alone = runtime.replace(
            distribution_strategy="mirrored" if several else "one_device",
            all_reduce_alg=None,
        )
        return config.replace(runtime=alone), EVALUATOR_MODE
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
    same = config.replace(runtime=config.runtime.replace(task_index=-1))
    digest = hashlib.sha256(to_yaml(same).encode()).hexdigest()
    return f"{mode} of {config.name or 'an experiment'}, config {digest[:12]}"


RoleCounts = dict[str, int]


def count_roles(runtime: RuntimeConfig, processes: int, source: str) -> RoleCounts:
    """Returns the number of members of each role, in the order of ranks.

    The first rank is the chief, followed by the parameter servers, the workers and the evaluator.
    `source` is what started the processes, for messages. Raises `ClusterError` if there are too few
    processes.
    """
    servers = runtime.parameter_servers
    coordinators = 1 if servers else 0
    workers = processes - coordinators - servers - runtime.num_evaluators
    counts = {
        "chief": coordinators,
        "ps": servers,
        "worker": workers,
        "evaluator": runtime.num_evaluators,
    }
    if workers < 1:
        needed = ", ".join(f"{n} {role}" for role, n in counts.items() if n and role != "worker")
        raise ClusterError(
            f"got {processes} processes, too few for a worker in addition to {needed}",
            path=source,
        )
    return {role: count for role, count in counts.items() if count}


def place_members(counts: RoleCounts, addresses: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Returns the addresses of each role; `addresses` are `host:port` by rank."""
    left = list(addresses)
    jobs = {}
    for role, count in counts.items():
        jobs[role] = tuple(left[:count])
        left = left[count:]
    return jobs


def role_of(counts: RoleCounts, rank: int) -> tuple[str, int]:
    """Returns the role and the index of the process with a rank."""
    for role, count in counts.items():
        if rank < count:
            return role, rank
        rank -= count
    raise ValueError(f"rank {rank} is beyond {counts}")
