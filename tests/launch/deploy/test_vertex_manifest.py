"""Jobs for Vertex AI: their worker pools, and what the replicas do with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from orbit_runner.cli.flags.config_flags import (
    add_config_flags,
    build_request,
    make_parser,
    parse_flags,
)
from orbit_runner.config.resolve import resolve
from orbit_runner.distribute.cluster.resolver import resolve_cluster
from tests.support.manifest_experiments import MIRRORED, ORDERS, TRICKY, settings

Printed = Callable[..., str]
IMAGE = "europe-docker.example/p/r/runner:1"
PLACE = ["vertex", f"--image={IMAGE}", "--model_dir=/gcs/bucket/run"]
ROLES = ("chief", "worker", "ps", "evaluator")


def _place(flags: list[str]) -> list[str]:
    gpus = any("gpus" in flag for flag in flags)
    return [*PLACE, *(["--accelerator_type=NVIDIA_TESLA_T4"] if gpus else [])]


def _config(pool: dict[str, Any]) -> Any:
    to = make_parser("run", "")
    to.add_argument("--model_dir")
    to.add_argument("--mode")
    add_config_flags(to)
    return resolve(build_request(parse_flags(to, pool["containerSpec"]["args"]))).config


def _tf_configs(pools: list[dict[str, Any]]) -> list[str]:
    """Does what Vertex AI does: nothing for one replica; no evaluators in the cluster."""
    counts = {r: pool.get("replicaCount", 0) for r, pool in zip(ROLES, pools, strict=False)}
    if sum(counts.values()) == 1:
        return []
    cluster = {
        role: [f"training-workerpool{ROLES.index(role)}-ab-{i}:2222" for i in range(count)]
        for role, count in counts.items()
        if count and role != "evaluator"
    }
    tasks = [{"type": r, "index": i, "cloud": "x"} for r, n in counts.items() for i in range(n)]
    more = {"environment": "cloud", "job": {"worker_pool_specs": []}}
    return [json.dumps({"cluster": cluster, "task": task, **more}) for task in tasks]


@pytest.mark.sample(7)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    "more", [[], ["--time=90", "--machine_type=a2-highgpu-1g", "--mode=train"]]
)
def test_manifest_is_valid_and_runs_the_given_experiment(
    printed: Printed, valid: Callable[[Any, str], None], order: str, more: list[str]
) -> None:
    flags, roles = ORDERS[order]

    spec = yaml.safe_load(printed(*_place(flags), *flags, *more))

    valid(spec, "custom_job_spec")
    pools = spec["workerPoolSpecs"]
    assert sum(pool.get("replicaCount", 0) for pool in pools) == sum(roles.values())
    for pool in filter(None, pools):
        config = _config(pool)
        assert config == settings(flags, roles)
    members = []
    for text in _tf_configs(pools):
        cluster = resolve_cluster(config.runtime, {"TF_CONFIG": text})
        assert cluster is not None
        members.append((str(cluster.me), cluster.is_chief))
    assert [name for name, writes in members if writes] == (["chief 0"] if members else [])


@pytest.mark.parametrize(
    ("order", "counts"),
    [
        ("one process", [1]),
        ("workers", [1, 1]),
        ("workers of the config", [1, 3]),
        ("with evaluator", [1, 1, 0, 1]),
        ("servers", [1, 3, 2]),
        ("all roles", [1, 1, 1, 1]),
    ],
)
def test_worker_pools_have_the_expected_replica_counts(
    printed: Printed, order: str, counts: list[int]
) -> None:
    flags, _ = ORDERS[order]

    spec = yaml.safe_load(printed(*_place(flags), *flags))

    assert [pool.get("replicaCount", 0) for pool in spec["workerPoolSpecs"]] == counts
    assert [pool == {} for pool in spec["workerPoolSpecs"]] == [not count for count in counts]


def test_pools_have_the_given_machine_type_and_accelerators(printed: Printed) -> None:
    flags, _ = ORDERS["servers"]
    text = printed(*_place(flags), *flags, "--machine_type=n1-highmem-8")

    machines = [pool["machineSpec"] for pool in yaml.safe_load(text)["workerPoolSpecs"]]

    plain = {"machineType": "n1-highmem-8"}
    gpu = plain | {"acceleratorType": "NVIDIA_TESLA_T4", "acceleratorCount": 1}
    assert machines == [plain, gpu, plain]


@pytest.mark.parametrize(
    ("order", "more", "scheduling"),
    [
        ("one process", [], None),
        ("one process", ["--time=90"], {"timeout": "5400s"}),
        ("workers", [], {"restartJobOnWorkerRestart": True}),
        ("workers", ["--time=1"], {"timeout": "60s", "restartJobOnWorkerRestart": True}),
    ],
)
def test_scheduling_has_the_timeout_and_the_restart_policy(
    printed: Printed, order: str, more: list[str], scheduling: dict[str, Any] | None
) -> None:
    spec = yaml.safe_load(printed(*PLACE, *ORDERS[order][0], *more))

    assert spec.get("scheduling") == scheduling


def test_special_characters_survive_in_the_manifest(printed: Printed) -> None:
    flags = [
        "--experiment=digits",
        f"--params_override={json.dumps({'description': TRICKY.replace('${', '$${')})}",
    ]

    (pool,) = yaml.safe_load(printed(*PLACE, *flags))["workerPoolSpecs"]

    assert _config(pool).description == TRICKY
    assert pool["containerSpec"]["command"] == ["runner", "run"]
    assert pool["containerSpec"]["imageUri"] == IMAGE
    assert pool["containerSpec"]["args"][1:] == ["--model_dir=/gcs/bucket/run"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["vertex"],
            [
                "--image\n    is not set",
                "--model_dir\n    is not set; expected a directory that all",
            ],
        ),
        (
            [*PLACE, "--model_dir=gs://bucket/run"],
            ["--model_dir\n    got 'gs://bucket/run', expected a directory", "/gcs/BUCKET/…"],
        ),
        (
            [*PLACE, "--gpus_per_worker=1"],
            ["--accelerator_type\n    is not set; expected the GPU type"],
        ),
        (
            [*PLACE, "--accelerator_type=NVIDIA_L4"],
            ["--gpus_per_worker\n    is not set; expected the number"],
        ),
        ([*PLACE, "--cpus=2"], ["unknown flag --cpus"]),
        (
            [*PLACE, MIRRORED, "--workers=2", "--runtime.cluster_source=config"],
            ["allowed: auto, tf_config"],
        ),
    ],
)
def test_invalid_flags_are_rejected(
    told: Callable[..., str], arguments: list[str], said: list[str]
) -> None:
    found = told(*arguments, "--experiment=digits")

    assert [text for text in said if text not in found] == []
