"""The config of a run on a cluster, as one process can run it with the same result."""

from __future__ import annotations

import dataclasses
from typing import Any

from orbit_runner.config.resolve import Resolved
from orbit_runner.config.schema.runtime import ClusterConfig
from orbit_runner.errors import RunnerError


def in_one_process(resolved: Resolved, strategy: str) -> Resolved:
    """Takes the machines of a run out of its config.

    Workers that train in step give what as many replicas of one process give. What runs elsewhere
    besides, such as services that make batches, touches no weights.

    Args:
        resolved: The config of the run.
        strategy: The strategy and its number of replicas, as checkpoints note it.

    Returns:
        A config for a process by itself.

    Raises:
        RunnerError: There is none with the same result.
    """
    runtime = resolved.config.runtime
    if runtime.traits.is_asynchronous:
        raise RunnerError(
            "RUN: it was trained under `parameter_server`, where the order of updates is nobody's "
            "choice\nit cannot come out the same again; `runner verify` checks its checkpoints"
        )
    changes: dict[str, Any] = {
        "tf_data_service": None,
        "cluster_source": "none",
        "cluster": ClusterConfig(),
        "worker_hosts": None,
        "task_type": None,
        "task_index": -1,
    }
    if runtime.distribution_strategy == "multi_worker_mirrored":
        replicas = int(strategy.rpartition("×")[2] or 1)
        devices = "num_gpus" if runtime.num_gpus else "num_virtual_devices"
        changes |= {"distribution_strategy": "mirrored", "all_reduce_alg": None, "num_workers": 0}
        changes[devices] = replicas
    config = resolved.config.replace(runtime=runtime.replace(**changes))
    return dataclasses.replace(resolved, config=config)
