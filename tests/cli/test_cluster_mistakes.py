"""`runner run` given an invalid cluster: one error, without tensorflow and without a directory."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from orbit_runner.distribute.cluster.addresses import listening_socket
from tests.support.problems import fails, output_of

RUN = ["run", "--experiment=digits", "--model_dir=run"]
MIRRORED = "--distribution_strategy=multi_worker_mirrored"
SERVED = "--distribution_strategy=parameter_server"
OF_CLUSTERS = ("TF_CONFIG", "SLURM_")


@pytest.fixture(autouse=True)
def environ(here, monkeypatch):
    """An environment that describes no cluster, to be changed."""
    for name in [*os.environ]:
        if name.startswith(OF_CLUSTERS):
            monkeypatch.delenv(name)
    return monkeypatch


def _tf_config(role: str = "worker", index: Any = 0, **jobs: Any) -> dict[str, str]:
    jobs = jobs or {"worker": ["localhost:0x1", "b:1"]}
    return {"TF_CONFIG": json.dumps({"cluster": jobs, "task": {"type": role, "index": index}})}


@pytest.mark.parametrize(
    ("variables", "arguments", "code", "path"),
    [
        ({}, [MIRRORED], "bad-cluster", "runtime.distribution_strategy"),
        (
            _tf_config(worker=["localhost:1", "localhost:2", "localhost:3"]),
            [MIRRORED, "--task.validation_data.global_batch_size=129"],
            "not-divisible", "task.train_data.global_batch_size",
        ),
        (_tf_config(), [MIRRORED], "bad-cluster", "TF_CONFIG"),
        ({}, ["--runtime.num_workers=2"], "not-supported", "runtime.num_workers"),
        (
            {}, [SERVED, "--runtime.remote_cluster=worker=a:1"],
            "bad-cluster", "runtime.remote_cluster",
        ),
        (
            {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"}, [MIRRORED],
            "bad-cluster", "Slurm",
        ),
    ],
    ids=lambda value: " ".join(value)[:50] if isinstance(value, list) else "",
)  # fmt: skip
@pytest.mark.usefixtures("no_tensorflow")
def test_invalid_cluster_description_is_rejected(variables, arguments, code, path, environ):
    for name, value in variables.items():
        environ.setenv(name, value)

    fails([*RUN, *arguments], code, path)

    assert not Path("run").exists()


@pytest.mark.usefixtures("no_tensorflow")
def test_port_in_use_is_reported(environ):
    with listening_socket(0) as other:
        port = other.getsockname()[1]
        (text,) = _tf_config(worker=[f"localhost:{port}", "a..b:2222"]).values()
        environ.setenv("TF_CONFIG", text)
        fails([*RUN, MIRRORED], "unreachable", "cluster")


@pytest.mark.parametrize("strategy", [MIRRORED, SERVED])
@pytest.mark.usefixtures("no_tensorflow")
def test_show_validate_and_diff_work_without_the_cluster(strategy, capsys):
    Path("shown.yaml").write_text(output_of(["show", "--experiment=digits", strategy]))

    assert output_of(["show", "--check", "shown.yaml"]) == "shown.yaml: ok\n"
    differing = output_of(["show", "--experiment=digits", "--diff=shown.yaml"])
    assert "distribution_strategy" in differing
    assert capsys.readouterr().err == ""
