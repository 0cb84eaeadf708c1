"""Scripts for Slurm: their directives, and what bash does with the rest."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from orbit_runner.distribute.cluster.resolver import resolve_cluster
from orbit_runner.launch.deploy.job_spec import JobSpec, parse_seconds
from orbit_runner.launch.deploy.slurm import Slurm, manifest
from tests.support.manifest_experiments import MIRRORED, ORDERS, TRICKY, resolved_of, settings
from tests.support.slurm_scripts import directives, run_script

Printed = Callable[..., str]


@pytest.mark.parametrize("order", ORDERS)
def test_script_runs_the_given_experiment(printed: Printed, order: str, tmp_path: Path) -> None:
    flags, roles = ORDERS[order]

    text = printed("slurm", *flags, "--model_dir=shared/run", "--mode=train")
    code, (call,) = run_script(text, tmp_path)

    assert code == 0
    assert call == [
        "srun", "--kill-on-bad-exit=0", "--wait=600", "runner", "run",
        "--experiment=shared/run/experiment.yaml", "--model_dir=shared/run", "--mode=train",
    ]  # fmt: skip
    config = resolved_of("--experiment=shared/run/experiment.yaml").config
    assert config == settings(flags, roles)


@pytest.mark.parametrize("order", [name for name, (_, r) in ORDERS.items() if sum(r.values()) > 1])
def test_slurm_ranks_map_to_the_roles(printed: Printed, order: str, tmp_path: Path) -> None:
    flags, roles = ORDERS[order]
    text = printed("slurm", *flags, "--model_dir=run", "--nodes=1")
    run_script(text, tmp_path)
    runtime = resolved_of("--experiment=run/experiment.yaml").config.runtime

    tasks = directives(text)["ntasks"]
    members = []
    for rank in range(int(tasks)):
        environ = {
            "SLURM_PROCID": str(rank),
            "SLURM_STEP_NUM_TASKS": tasks,
            "SLURM_STEP_NODELIST": "n1",
            "SLURM_STEP_TASKS_PER_NODE": tasks,
        }
        cluster = resolve_cluster(runtime, environ)
        assert cluster is not None
        members.append(cluster.me.role)

    assert {role: members.count(role) for role in members} == roles


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ORDERS["one process"][0],
            {"job-name": "digits", "nodes": "1", "ntasks": "1", "requeue": "",
             "signal": "TERM@120", "open-mode": "append", "output": "%x-%j.log"},
        ),
        (
            [*ORDERS["workers"][0], "--cpus=8", "--memory=16Gi", "--time=1-2", "--partition=gpu",
             "--account=us", "--name=a"],
            {"job-name": "a", "nodes": "2", "ntasks": "2", "cpus-per-task": "8",
             "mem-per-cpu": "2048M", "time": "1-02:00:00", "partition": "gpu", "account": "us"},
        ),
        ([*ORDERS["workers"][0], "--memory=1Gi"], {"mem-per-cpu": "1024M"}),
        (
            [*ORDERS["servers"][0], "--nodes=2"],
            {"nodes": "2", "ntasks": "6", "gpus-per-task": "1"},
        ),
        (ORDERS["mirrored"][0], {"nodes": "1", "ntasks": "1", "gpus-per-task": "4"}),
        (ORDERS["with evaluator"][0], {"nodes": "2", "ntasks": "3"}),
    ],
)  # fmt: skip
def test_directives_request_the_given_resources(
    printed: Printed, arguments: list[str], expected: dict[str, str]
) -> None:
    found = directives(printed("slurm", *arguments))

    assert {name: found.get(name) for name in expected} == expected
    optional = {"cpus-per-task", "mem-per-cpu", "time", "partition", "account", "gpus-per-task"}
    if "requeue" in expected:
        assert optional & {*found} == set()


def test_srun_gets_the_cpus_per_task(printed: Printed, tmp_path: Path) -> None:
    _, (call,) = run_script(printed("slurm", "--experiment=digits", "--cpus=8"), tmp_path)

    assert "--cpus-per-task=8" in call[: call.index("runner")]


@pytest.mark.parametrize(
    ("code", "before", "again"),
    [
        ("0", "0", False),
        ("1", "0", False),
        ("2", "0", False),
        ("3", "0", False),
        ("137", "0", False),
        ("138", "", True),
        ("138", "1", True),
        ("138", "2", False),
        ("139", "", True),
        ("143", "0", True),
        ("143", "7", False),
    ],
)
def test_job_is_requeued_only_after_losses_and_within_the_limit(
    printed: Printed, tmp_path: Path, code: str, before: str, again: bool
) -> None:
    text = printed("slurm", *ORDERS["workers"][0], "--max_restarts=2")
    environ = {"SRUN_CODE": code} | ({"SLURM_RESTART_COUNT": before} if before else {})

    ended, calls = run_script(text, tmp_path, **environ)

    assert ended == int(code)
    assert calls[1:] == ([["scontrol", "requeue", "42"]] if again else [])


def test_special_characters_in_config_and_path_survive_the_shell(
    printed: Printed, tmp_path: Path
) -> None:
    flags = [
        "--experiment=digits",
        f"--params_override={json.dumps({'description': TRICKY.replace('${', '$${')})}",
    ]
    folder = "a folder/$(it's) `x`"

    _, (call,) = run_script(printed("slurm", *flags, f"--model_dir={folder}"), tmp_path)

    assert call[-2:] == [f"--experiment={folder}/experiment.yaml", f"--model_dir={folder}"]
    config = resolved_of(f"--experiment={folder}/experiment.yaml").config
    assert config.description == TRICKY


def test_special_characters_in_arguments_survive_the_shell(tmp_path: Path) -> None:
    arguments = ("--a=it's $HOME", "--b=`x` *", "")
    order = JobSpec(name="a", roles={"worker": 1}, clustered=False, gpus=0,
                  experiment="name: a\n", model_dir="run", arguments=arguments)  # fmt: skip

    _, (call,) = run_script(manifest(order, Slurm()), tmp_path)

    assert tuple(call[-3:]) == arguments


def test_flag_values_cannot_add_directives(printed: Printed) -> None:
    text = printed("slurm", "--experiment=digits", "--model_dir=a\n#SBATCH --nodes=900\nrm -r b")

    assert directives(text)["nodes"] == "1"
    assert "\n# #SBATCH --nodes=900\n" in text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400), ("1:30", 90), ("2:00:00", 7200), ("1-0", 86400), ("1-2:30", 95400),
        ("1-2:30:10", 95410), ("", None), ("1h", None), ("-1", None), ("1:2:3:4", None),
        ("1:5", None), ("a", None),
    ],
)  # fmt: skip
def test_time_limits_are_parsed(text: str, seconds: int | None) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--nodes=3"], "--nodes\n    got 3, expected at most 1, the number of processes"),
        (["--nodes=two"], "--nodes\n    got 'two', expected an integer"),
        (["--time=1h"], "--time\n    got '1h', expected minutes"),
        (["--partition=a\n#SBATCH --x"], "--partition\n    got 'a\\n#SBATCH --x', expected a name"),
        (["--image=x"], "unknown flag --image"),
        ([MIRRORED, "--workers=2", "--runtime.cluster_source=tf_config"], "allowed: auto, slurm"),
    ],
)
def test_invalid_flags_are_rejected(
    told: Callable[..., str], arguments: list[str], said: str
) -> None:
    assert said in told("slurm", "--experiment=digits", *arguments)
