"""Which settings of `runtime` about devices, clusters and TPUs can be combined."""
# ruff: noqa: E501 (one line a case)

from __future__ import annotations

import json
from typing import Any

import pytest

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.config.schema.strategies import STRATEGIES

ONE_PROCESS = ("off", "one_device", "mirrored", "tpu")
MIRRORED, SERVED = "multi_worker_mirrored", "parameter_server"


def _runtime(strategy: str, **settings: Any) -> RuntimeConfig:
    required = {"tpu": "local"} if strategy == "tpu" else {}
    return RuntimeConfig(distribution_strategy=strategy, **required | settings)


# The strategy, the other settings, the blamed field, and a part of the message.
CASES = [
    ("one_device", {"num_gpus": 2}, "num_gpus", "got 2 under `one_device`, which uses one device"),
    (SERVED, {"num_gpus": 2}, "num_gpus", "got 2 under `parameter_server`, which uses one device"),
    ("tpu", {"num_gpus": 2}, "num_gpus", "got 2, which has no effect under `tpu`"),
    ("tpu", {"num_gpus": -1}, "num_gpus", "got -1, which has no effect under `tpu`"),
    ("off", {"num_virtual_devices": 2}, "num_virtual_devices", "got 2 under `off` with num_gpus: 0\nallowed: 1"),
    (MIRRORED, {"num_virtual_devices": 2}, "num_virtual_devices", "num_gpus: 0\nallowed: 1"),
    (MIRRORED, {"num_gpus": 1, "num_virtual_devices": 2}, "num_virtual_devices", "num_gpus: 1\nallowed: 1"),
    ("one_device", {"num_gpus": 1, "num_virtual_devices": 2}, "num_virtual_devices", "got 2 under `one_device` with num_gpus: 1\nallowed: 1"),
    ("mirrored", {"num_gpus": 2, "num_virtual_devices": 2}, "num_virtual_devices", "got 2 under `mirrored` with num_gpus: 2\nallowed: 1"),
    ("mirrored", {"all_reduce_alg": "ring"}, "all_reduce_alg", "got 'ring' under `mirrored`\nallowed: nccl, hierarchical_copy, reduction_to_one_device"),
    (MIRRORED, {"all_reduce_alg": "hierarchical_copy"}, "all_reduce_alg", "allowed: auto, ring, nccl"),
    (MIRRORED, {"all_reduce_alg": "nccl"}, "all_reduce_alg", "nccl requires GPUs, but num_gpus is 0"),
    (SERVED, {"all_reduce_alg": "auto"}, "all_reduce_alg", "does not all-reduce gradients\nallowed: null"),
    (SERVED, {"worker_hosts": "a:1"}, "worker_hosts", "contains no parameter servers; describe the cluster in TF_CONFIG"),
    *((s, {"worker_hosts": "a:1,b:1"}, "worker_hosts", "runs in one process\nset runtime.distribution_strategy: multi_worker") for s in ONE_PROCESS),
    *((s, {"num_workers": 2}, "num_workers", f"got 2 under `{s}`, which runs in one process") for s in ONE_PROCESS),
    *((s, {"num_parameter_servers": 1}, "num_parameter_servers", f"`{s}` has no parameter servers") for s in (*ONE_PROCESS, MIRRORED)),
    *((s, {"remote_cluster": "worker=a:1;ps=b:1"}, "remote_cluster", f"is not supported under `{s}`") for s in (*ONE_PROCESS, MIRRORED)),
    (SERVED, {"mixed_precision_dtype": "float16"}, "mixed_precision_dtype", "allowed: null, 'float32', 'bfloat16'"),
    (SERVED, {"enable_xla": True}, "enable_xla", "XLA cannot compile"),
    (SERVED, {"run_eagerly": True}, "run_eagerly", "allowed: false under `parameter_server`"),
    (SERVED, {"tf_data_service": "grpc://a:1"}, "tf_data_service", "allowed: null under `parameter_server`"),
    *((s, {"tpu": "local"}, "tpu", f"has no effect under `{s}`\nset runtime.distribution_strategy: tpu") for s in STRATEGIES if s != "tpu"),
    ("mirrored", {"loss_scale": 2.0}, "loss_scale", "only float16 needs a loss scale"),
]  # fmt: skip


def _text(strategy: str, settings: dict[str, Any]) -> str:
    required = {"tpu": "local"} if strategy == "tpu" else {}
    return json.dumps({"runtime": {"distribution_strategy": strategy, **required, **settings}})


@pytest.mark.parametrize(("strategy", "settings", "field", "said"), CASES)
def test_contradictory_runtime_settings_are_reported_once(refused, strategy, settings, field, said):
    problems = refused(params_overrides=(_text(strategy, settings),))

    assert [problem.path for problem in problems] == [f"runtime.{field}"]
    assert said in problems[0].message


@pytest.mark.parametrize(
    ("strategy", "settings"),
    [
        (MIRRORED, {"num_gpus": 2, "all_reduce_alg": "nccl"}),
        (MIRRORED, {"num_workers": 4, "num_evaluators": 1, "all_reduce_alg": "ring"}),
        (MIRRORED, {"worker_hosts": "a:1,b:1", "task_index": 1}),
        (SERVED, {"num_workers": 2, "num_parameter_servers": 2, "num_gpus": 1}),
        (SERVED, {"mixed_precision_dtype": "bfloat16"}),
        (SERVED, {"remote_cluster": "worker=a:1;ps=b:1"}),
        ("mirrored", {"num_workers": 1, "num_virtual_devices": 2}),
        ("mirrored", {"num_gpus": 1, "all_reduce_alg": "nccl"}),
        ("one_device", {"num_evaluators": 1}),
        ("tpu", {"tpu": "local"}),
    ],
)
def test_compatible_runtime_settings_are_accepted(over_digits, strategy, settings):
    config = over_digits(params_overrides=(_text(strategy, settings),))

    assert config.runtime.distribution_strategy == strategy


@pytest.mark.parametrize(
    ("strategy", "settings", "workers", "replicas"),
    [
        ("off", {}, 1, 1),
        ("one_device", {"num_gpus": 1}, 1, 1),
        ("mirrored", {}, 1, 1),
        ("mirrored", {"num_gpus": 4}, 1, 4),
        ("mirrored", {"num_virtual_devices": 3}, 1, 3),
        ("mirrored", {"num_gpus": -1}, 1, None),
        (MIRRORED, {}, 3, 3),
        (MIRRORED, {"num_gpus": 2}, 3, 6),
        (MIRRORED, {"num_gpus": -1}, 3, None),
        (SERVED, {"num_workers": 4}, 5, 1),
        ("tpu", {}, 1, None),
    ],
)
def test_replica_count_follows_from_strategy_devices_and_workers(
    strategy, settings, workers, replicas
):
    assert _runtime(strategy, **settings).num_replicas(workers) == replicas
