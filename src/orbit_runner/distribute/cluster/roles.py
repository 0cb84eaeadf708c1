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
from orbit_runner.distribute.cluster.description import Cluster, ClusterError, Member
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


def assign_roles(runtime: RuntimeConfig, addresses: Sequence[str], source: str) -> list[Member]:
    """Returns the members of a cluster by rank; `addresses` are `host:port` by rank.

    The first rank is the chief, followed by the parameter servers, the workers and the evaluator.
    `source` is what started the processes, for messages. Raises `ClusterError` if there are too few
    processes.
    """
    servers = runtime.parameter_servers
    coordinators = 1 if servers else 0
    workers = len(addresses) - coordinators - servers - runtime.num_evaluators
    counts = {
        "chief": coordinators,
        "ps": servers,
        "worker": workers,
        "evaluator": runtime.num_evaluators,
    }
    if workers < 1:
        needed = ", ".join(f"{n} {role}" for role, n in counts.items() if n and role != "worker")
        raise ClusterError(
            f"got {len(addresses)} processes, too few for a worker in addition to {needed}",
            path=source,
        )
    places = [(role, index) for role, count in counts.items() for index in range(count)]
    return [Member(*place, address) for place, address in zip(places, addresses, strict=True)]
