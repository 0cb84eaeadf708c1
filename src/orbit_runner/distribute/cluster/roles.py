"""Adapts the experiment that all members are started with to the role of a process."""

from __future__ import annotations

import hashlib

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.serialize import to_yaml
from orbit_runner.distribute.cluster.description import Cluster
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
            variable_partitioner=None,
            cluster_source="none",
        )
        return config.replace(runtime=alone), EVALUATOR_MODE
    if not cluster.jobs.get("evaluator") or mode != "train_and_eval":
        return config, mode
    if config.trainer.early_stopping is not None:
        raise SettingError(
            "trainer.early_stopping",
            "is not supported with an evaluator, because the workers do not receive its results\n"
            "unset trainer.early_stopping, or remove the evaluator from the cluster",
        )
    return config, "train"


def common_purpose(config: ExperimentConfig, mode: str) -> str:
    """Returns a text that is the same on all members that run the same experiment."""
    same = config.replace(runtime=config.runtime.replace(task_type=None, task_index=-1))
    digest = hashlib.sha256(to_yaml(same).encode()).hexdigest()
    return f"{mode} of {config.name or 'an experiment'}, config {digest[:12]}"
