"""Which description of a cluster is used, and which settings must agree with it."""

import json

import pytest

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute.cluster.description import ClusterError
from orbit_runner.distribute.cluster.resolver import resolve_cluster

MIRRORED, SERVED = "multi_worker_mirrored", "parameter_server"
SLURM = {
    "SLURM_PROCID": "1",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
}
CONFIG = {"worker_hosts": "c:1,d:1", "task_index": 1}


def _tf_config(role="worker", index=1, **jobs):
    jobs = jobs or {"worker": 2}
    cluster = {name: [f"{name}{i}:1" for i in range(count)] for name, count in jobs.items()}
    task = {"type": role, "index": index}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}


@pytest.mark.parametrize(
    ("strategy", "settings", "environ", "source", "me"),
    [
        (MIRRORED, CONFIG, _tf_config() | SLURM, "TF_CONFIG", "worker 1"),
        (MIRRORED, CONFIG, SLURM, "runtime.worker_hosts", "worker 1"),
        (MIRRORED, CONFIG, {"TF_CONFIG": " "} | SLURM, "runtime.worker_hosts", "worker 1"),
        (MIRRORED, {}, {"TF_CONFIG": "{}"} | SLURM, "Slurm", "worker 1"),
        (MIRRORED, {"num_workers": 2}, SLURM, "Slurm", "worker 1"),
        (MIRRORED, {}, SLURM, "Slurm", "worker 1"),
        (MIRRORED, {"num_workers": 2}, _tf_config(), "TF_CONFIG", "worker 1"),
        (MIRRORED, {"num_workers": 3}, _tf_config(chief=1, worker=2), "TF_CONFIG", "worker 1"),
        (
            SERVED, {"num_workers": 2, "num_parameter_servers": 1},
            _tf_config(chief=1, worker=2, ps=1), "TF_CONFIG", "worker 1",
        ),
        # A single process may be a cluster of one, and the evaluator of a cluster.
        *(
            (strategy, {}, _tf_config("chief", 0, chief=1), "TF_CONFIG", "chief 0")
            for strategy in ("off", "one_device", "mirrored")
        ),
        *(
            (
                strategy, {}, _tf_config("evaluator", 0, chief=1, worker=3, ps=1),
                "TF_CONFIG", "evaluator 0",
            )
            for strategy in ("one_device", "mirrored")
        ),
    ],
)  # fmt: skip
def test_cluster_is_read_from_the_source_of_highest_priority(
    strategy, settings, environ, source, me
):
    cluster = resolve_cluster(RuntimeConfig(distribution_strategy=strategy, **settings), environ)

    assert (cluster.source, str(cluster.me)) == (source, me)


@pytest.mark.parametrize(
    ("settings", "environ"),
    [
        ({}, {}),
        ({}, SLURM),
        ({}, {"TF_CONFIG": "{}"}),
        (
            {"distribution_strategy": SERVED, "remote_cluster": "worker=a:1;ps=b:1"},
            _tf_config(worker=5),
        ),
    ],
)
def test_single_process_has_no_cluster(settings, environ):
    assert resolve_cluster(RuntimeConfig(**settings), environ) is None


@pytest.mark.parametrize(
    ("settings", "environ", "said"),
    [
        (
            {"distribution_strategy": MIRRORED}, {},
            "`multi_worker_mirrored` requires a cluster, but none is configured\nto try it on this",
        ),
        ({"distribution_strategy": SERVED}, {"TF_CONFIG": "{}"}, "but none is configured"),
        (
            {"distribution_strategy": "mirrored"}, _tf_config(),
            "TF_CONFIG: describes 2 × worker, but runtime.distribution_strategy is `mirrored`, "
            "which runs in one process\nallowed: multi_worker_mirrored, parameter_server",
        ),
        (
            {"distribution_strategy": MIRRORED}, _tf_config(worker=2, ps=1),
            "describes parameter servers, which `multi_worker_mirrored` does not use",
        ),
        (
            {"distribution_strategy": SERVED}, _tf_config(worker=2),
            "describes no chief, but `parameter_server` requires one\n"
            "TF_CONFIG: describes no ps, but `parameter_server` requires one",
        ),
        (
            {"distribution_strategy": MIRRORED, "num_workers": 3}, _tf_config(),
            "TF_CONFIG: runtime.num_workers is 3, but the cluster has 2",
        ),
        (
            {"distribution_strategy": SERVED, "num_workers": 3, "num_parameter_servers": 2},
            _tf_config(chief=1, worker=2, ps=1),
            "runtime.num_workers is 3, but the cluster has 2\n"
            "TF_CONFIG: runtime.num_parameter_servers is 2, but the cluster has 1",
        ),
    ],
)  # fmt: skip
def test_contradictory_cluster_settings_are_rejected(settings, environ, said):
    with pytest.raises(ClusterError) as caught:
        resolve_cluster(RuntimeConfig(**settings), environ)

    assert said in str(caught.value)
