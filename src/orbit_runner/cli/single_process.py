"""Converts the config of a run on a cluster for a single process with the same result."""

from __future__ import annotations

import dataclasses
from typing import Any

from orbit_runner.config.resolve import ResolvedConfig
from orbit_runner.config.schema.runtime import ClusterConfig
from orbit_runner.errors import RunnerError


def convert_to_single_process(resolved: ResolvedConfig, strategy: str) -> ResolvedConfig:
    """Returns the config with which a single process has the same result.

    Synchronous workers have the same result as the same number of replicas in one process. Other
    processes, such as data services, do not affect the weights. `strategy` includes the number of
    replicas, as in checkpoint records. Raises `RunnerError` for `parameter_server`, whose results
    cannot be reproduced.
    """
    runtime = resolved.config.runtime
    if runtime.traits.is_asynchronous:
        raise RunnerError(
            "RUN: was trained with `parameter_server`, where the order of updates is not "
            "deterministic\nit cannot be reproduced; use `runner verify` to check its checkpoints"
        )
    changes: dict[str, Any] = {
        "tf_data_service": None,
        "cluster_source": "none",
        "cluster": ClusterConfig(),
        "worker_hosts": None,
        "task_type": None,
        "task_index": -1,
    }
    if runtime.traits.synchronous_workers:
        replicas = int(strategy.rpartition("×")[2] or 1)
        changes |= {"distribution_strategy": "mirrored", "all_reduce_alg": None, "num_workers": 0}
        changes[runtime.device_field] = replicas
    config = resolved.config.replace(runtime=runtime.replace(**changes))
    return dataclasses.replace(resolved, config=config)
