"""`runner run` given an invalid cluster: exit code 2 and one message, without tensorflow."""

from __future__ import annotations

import json
import resource
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orbit_runner.distribute.cluster.addresses import listening_socket

Refused = Callable[..., str]
Cli = Callable[..., "subprocess.CompletedProcess[str]"]
MIRRORED = "--distribution_strategy=multi_worker_mirrored"
SERVED = "--distribution_strategy=parameter_server"
MOST_CPU_SECONDS = 2.0  # It takes half a second; machines differ.
OF_CLUSTERS = ("TF_CONFIG", "SLURM_", "SM_", "KUBERNETES_")


@pytest.fixture
def alone(without_tensorflow: dict[str, str]) -> dict[str, str]:
    """An environment without tensorflow that describes no cluster."""
    return {
        name: value
        for name, value in without_tensorflow.items()
        if not name.startswith(OF_CLUSTERS)
    }


def _tf_config(role: str = "worker", index: Any = 0, **jobs: Any) -> dict[str, str]:
    jobs = jobs or {"worker": ["localhost:0x1", "b:1"]}
    return {"TF_CONFIG": json.dumps({"cluster": jobs, "task": {"type": role, "index": index}})}


def _rejection(refused: Refused, folder: Path, env: dict[str, str], *arguments: str) -> str:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)

    found = refused(folder, "--experiment=digits", "--model_dir=run", *arguments, env=env)

    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < MOST_CPU_SECONDS
    assert not (folder / "run").exists()
    return found


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("environ", "arguments", "said"),
    [
        ({}, [MIRRORED], ["`multi_worker_mirrored` requires a cluster", "launch --workers=2"]),
        ({}, [SERVED], ["`parameter_server` requires a cluster, but none is configured"]),
        ({"TF_CONFIG": "{"}, [MIRRORED], ["TF_CONFIG is not valid JSON", "it begins with: '{'"]),
        ({"TF_CONFIG": "[1]"}, [MIRRORED], ["TF_CONFIG: got '[1]', expected {\"cluster\""]),
        (_tf_config(worker={"0": "a:1"}), [MIRRORED], ["cluster.worker: got {'0': 'a:1'}"]),
        (_tf_config(workers=["a:1"]), [MIRRORED], ["role 'workers'; did you mean 'worker'"]),
        (_tf_config("wroker", worker=["a:1"]), [MIRRORED], ["task.type: unknown role 'wroker'"]),
        (_tf_config(index=2, worker=["a:1", "b:1"]), [MIRRORED], ["got 2, allowed: 0 to 1"]),
        (_tf_config(), [MIRRORED], ["worker[0]: got port '0x1' in 'localhost:0x1'"]),
        (_tf_config(worker=["a:1", "a:1"]), [MIRRORED], ["got a:1, already used by worker[0]"]),
        (
            _tf_config(worker=["a"] * 500), [MIRRORED],
            ["got 'a', expected host:port", "… and 496 more"],
        ),
        (
            _tf_config(worker=["a:1", "b:1"]), ["--distribution_strategy=mirrored"],
            ["describes 2 × worker", "`mirrored`, which runs in one process"],
        ),
        (
            _tf_config(worker=["a:1", "b:1"], ps=["c:1"]), [MIRRORED],
            ["describes parameter servers, which `multi_worker_mirrored` does not use"],
        ),
        (
            _tf_config(worker=["a:1", "b:1"]), [MIRRORED, "--runtime.num_workers=3"],
            ["runtime.num_workers is 3, but the cluster has 2"],
        ),
        ({}, [MIRRORED, "--runtime.worker_hosts=a:1,b:1"], ["runtime.task_index: is not set"]),
        (
            {}, [MIRRORED, "--runtime.cluster.worker=[a:1, b]", "--runtime.task_index=0"],
            ["runtime.cluster: cluster.worker[1]: got 'b', expected host:port"],
        ),
        (
            {}, [MIRRORED, "--runtime.task_type=wroker"],
            ["runtime.task_type — --runtime.task_type", "did you mean 'worker'"],
        ),
        (
            {}, ["--runtime.worker_hosts=a:1,b:1"],
            ["runtime.worker_hosts — --runtime.worker_hosts", "`one_device` runs in one process"],
        ),
        (
            {}, ["--runtime.num_workers=2"],
            ["runtime.num_workers — --runtime.num_workers", "got 2 under `one_device`"],
        ),
        (
            {}, [SERVED, "--runtime.remote_cluster=worker=a:1"],
            ["runtime.remote_cluster: has no ps"],
        ),
        (
            {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"}, [MIRRORED],
            ["Slurm: SLURM_STEP_NODELIST is not set; start the tasks with `srun"],
        ),
        (
            {"SLURM_PROCID": "x", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NODELIST": "n[1-2]",
             "SLURM_STEP_TASKS_PER_NODE": "1(x2)"}, [MIRRORED],
            ["Slurm: SLURM_PROCID is 'x', expected a number"],
        ),
        (
            {"SM_HOSTS": '["a", "b"]', "SM_CURRENT_HOST": "c"}, [MIRRORED],
            ["SageMaker: SM_CURRENT_HOST is 'c', allowed: a, b"],
        ),
    ],
    ids=lambda value: " ".join(value)[:50] if isinstance(value, list) else "",
)  # fmt: skip
def test_invalid_cluster_description_is_rejected(
    environ: dict[str, str],
    arguments: list[str],
    said: list[str],
    tmp_path: Path,
    alone: dict[str, str],
    refused: Refused,
) -> None:
    found = _rejection(refused, tmp_path, alone | environ, *arguments)

    assert [text for text in said if text not in found] == []


def test_unknown_host_and_port_in_use_are_both_reported(
    tmp_path: Path, alone: dict[str, str], refused: Refused
) -> None:
    with listening_socket(0) as other:
        port = other.getsockname()[1]
        environ = _tf_config(worker=[f"localhost:{port}", "a..b:2222"])
        found = _rejection(refused, tmp_path, alone | environ, MIRRORED)

    assert "2 problems" in found
    assert "TF_CONFIG: worker 1: cannot resolve the host 'a..b': not a valid host name" in found
    assert f"TF_CONFIG: worker 0: port {port} of localhost:{port} is in use" in found


def test_unreachable_data_services_are_rejected(
    tmp_path: Path, alone: dict[str, str], refused: Refused
) -> None:
    section = "--task.validation_data"
    with listening_socket(0) as other:
        there = f"grpc://127.0.0.1:{other.getsockname()[1]}"
        begun = time.monotonic()
        found = _rejection(
            refused, tmp_path, alone, f"--tf_data_service={there},grpc://127.0.0.1:9"
        )
        assert time.monotonic() - begun < 60.0
    gone = "grpc://127.0.0.1:9 cannot be reached: nothing is listening there"
    assert "1 problem " in found
    assert "runtime.tf_data_service — --tf_data_service" in found
    assert f"{gone}\n    start it there with `runner server --role=data`, or disable it: " in found
    assert found.endswith("--runtime.tf_data_service=null\n")

    own = (f"{section}.enable_tf_data_service=true",
           f"{section}.tf_data_service_address=grpc://127.0.0.1:9")  # fmt: skip
    found = _rejection(refused, tmp_path, alone, *own)
    assert found.endswith(f"disable it: {section}.enable_tf_data_service=false\n")
    only_trains = _rejection(refused, tmp_path, alone, *own, "--mode=train", "--train_steps=0",
                        "--train_epochs=0")  # fmt: skip
    assert "127.0.0.1:9" not in only_trains


def test_batch_not_divisible_by_worker_count_is_rejected(
    tmp_path: Path, alone: dict[str, str], refused: Refused
) -> None:
    environ = _tf_config(worker=["localhost:1234", "localhost:1235", "localhost:1236"])

    found = _rejection(refused, tmp_path, alone | environ, MIRRORED)

    assert "got 64, which is not a multiple of 3 (3 replicas)" in found


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "strategy",
    [MIRRORED, SERVED, "--config_file=configs/runtime/multi_worker.yaml"],
)
def test_show_validate_and_diff_work_without_the_cluster(
    cli: Cli, tmp_path: Path, strategy: str
) -> None:
    shown = cli("show", "--experiment=digits", strategy)
    assert (shown.returncode, shown.stderr) == (0, "")
    (tmp_path / "shown.yaml").write_text(shown.stdout)

    checked = cli("validate", "shown.yaml")

    assert (checked.returncode, checked.stdout) == (0, "shown.yaml: ok\n")
    differing = cli("diff", "digits", "shown.yaml")
    assert "distribution_strategy" in differing.stdout
