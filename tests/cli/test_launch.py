"""`runner launch`: what it starts."""

from __future__ import annotations

import json
import sys

import pytest

from orbit_runner.cli.commands import launch
from orbit_runner.jobs.launch import LaunchPlan, member_specs

MLP = "--experiment=digits_mlp"
WORKERS = "--runtime.distribution_strategy=multi_worker_mirrored"
SERVERS = "--runtime.distribution_strategy=parameter_server"


def plan_of(*arguments: str) -> LaunchPlan:
    return launch.make_plan(launch._parse(launch.COMMAND.parser(), arguments))


@pytest.mark.usefixtures("here")
def test_multi_worker_launch_starts_workers_and_evaluator():
    specs = member_specs(plan_of("--workers=2", "--evaluator", "--", MLP, WORKERS))
    assert [spec.name for spec in specs] == ["worker 0", "worker 1", "evaluator 0"]
    assert [spec.results for spec in specs] == [True, False, False]
    clusters = [json.loads(spec.environ["TF_CONFIG"]) for spec in specs]
    assert clusters[0]["cluster"] == clusters[2]["cluster"]
    assert [c["task"] for c in clusters][1:] == [
        {"type": "worker", "index": 1},
        {"type": "evaluator", "index": 0},
    ]
    # All share one directory, so none of them chooses one by its own clock.
    (command,) = {spec.command for spec in specs}
    assert command[:6] == (sys.executable, "-m", "orbit_runner", "run", MLP, WORKERS)
    assert any(flag.startswith("--model_dir=runs/digits_mlp/") for flag in command[6:])


@pytest.mark.usefixtures("here")
def test_parameter_server_launch_starts_chief_workers_and_servers():
    specs = member_specs(plan_of("--workers=2", "--ps=2", "--", MLP, SERVERS, "--model_dir=a"))
    names = [spec.name for spec in specs]
    assert names == ["chief 0", "worker 0", "worker 1", "ps 0", "ps 1"]
    assert [spec.results for spec in specs] == [True, False, False, False, False]


@pytest.mark.usefixtures("here")
def test_member_counts_come_from_config_and_flags_override():
    config = (MLP, SERVERS, "--runtime.num_workers=2", "--runtime.num_parameter_servers=2",
              "--runtime.num_evaluators=1", "--model_dir=a")  # fmt: skip
    assert plan_of("--", *config).counts == {"chief": 1, "worker": 2, "ps": 2, "evaluator": 1}
    specs = member_specs(plan_of("--workers=4", "--", *config))
    assert [spec.name.split()[0] for spec in specs].count("worker") == 4
    assert specs[0].command[-1:] == ("--runtime.num_workers=4",)


@pytest.mark.parametrize(
    ("inherited", "expected"),
    [
        (None, ["0", "1"]),
        ("5,7,8", ["5", "7"]),
        ("5", ["5", ""]),
        ("0,0", ["0", "0"]),  # two workers on one GPU
    ],
)
def test_workers_on_one_machine_get_separate_gpus(inherited, expected, here, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if inherited is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", inherited)
    monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    specs = member_specs(plan_of("--workers=2", "--", MLP, WORKERS, "--num_gpus=1"))
    assert [spec.environ["CUDA_VISIBLE_DEVICES"] for spec in specs] == expected
    assert {spec.environ["TF_FORCE_GPU_ALLOW_GROWTH"] for spec in specs} == {"true"}
