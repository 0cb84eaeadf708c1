"""Scripts for Slurm: their directives, and what bash does with the rest."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from orbit_runner.distribute.cluster.resolver import resolve_cluster
from orbit_runner.launch.deploy.job_spec import Order, seconds_of
from orbit_runner.launch.deploy.slurm import Slurm, manifest
from tests.support.manifest_experiments import MIRRORED, ORDERS, TRICKY, resolved_of, settings

Printed = Callable[..., str]
BASH = shutil.which("bash") or pytest.skip("there is no bash", allow_module_level=True)
# A fake `srun` and `scontrol` that records its arguments.
RECORDER = """\
#!/bin/bash
printf '%s\\0' "$(basename "$0")" "$@" >> calls
printf '\\n' >> calls
[ "$(basename "$0")" = srun ] && exit "${SRUN_CODE:-0}"
exit 0
"""


def _directives(text: str) -> dict[str, str]:
    """Reads as `sbatch` does: up to the first line that is not a comment."""
    found = {}
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            break
        if line.startswith("#SBATCH "):
            name, _, value = line.removeprefix("#SBATCH --").partition("=")
            found[name] = value
    return found


def _run(text: str, folder: Path, **environ: str) -> tuple[int, list[list[str]]]:
    """Runs a script; returns its exit code and the commands that it called."""
    checked = subprocess.run([BASH, "-n"], input=text, text=True, capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    (folder / "bin").mkdir(exist_ok=True)
    for name in ("srun", "scontrol"):
        (folder / "bin" / name).write_text(RECORDER)
        (folder / "bin" / name).chmod(0o755)
    path = os.pathsep.join([str(folder / "bin"), os.environ["PATH"]])
    done = subprocess.run(
        [BASH, "-s"],
        input=text,
        cwd=folder,
        env={"PATH": path, "SLURM_JOB_ID": "42", **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    calls = (folder / "calls").read_text().split("\n")
    return done.returncode, [call.split("\0")[:-1] for call in calls if call]


@pytest.mark.parametrize("order", ORDERS)
def test_script_runs_the_given_experiment(printed: Printed, order: str, tmp_path: Path) -> None:
    flags, roles = ORDERS[order]

    text = printed("slurm", *flags, "--model_dir=shared/run", "--mode=train")
    code, (call,) = _run(text, tmp_path)

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
    _run(text, tmp_path)
    runtime = resolved_of("--experiment=run/experiment.yaml").config.runtime

    tasks = _directives(text)["ntasks"]
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
    found = _directives(printed("slurm", *arguments))

    assert {name: found.get(name) for name in expected} == expected
    optional = {"cpus-per-task", "mem-per-cpu", "time", "partition", "account", "gpus-per-task"}
    if "requeue" in expected:
        assert optional & {*found} == set()


def test_srun_gets_the_cpus_per_task(printed: Printed, tmp_path: Path) -> None:
    _, (call,) = _run(printed("slurm", "--experiment=digits", "--cpus=8"), tmp_path)

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

    ended, calls = _run(text, tmp_path, **environ)

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

    _, (call,) = _run(printed("slurm", *flags, f"--model_dir={folder}"), tmp_path)

    assert call[-2:] == [f"--experiment={folder}/experiment.yaml", f"--model_dir={folder}"]
    config = resolved_of(f"--experiment={folder}/experiment.yaml").config
    assert config.description == TRICKY


def test_special_characters_in_arguments_survive_the_shell(tmp_path: Path) -> None:
    arguments = ("--a=it's $HOME", "--b=`x` *", "")
    order = Order(name="a", roles={"worker": 1}, clustered=False, gpus=0,
                  experiment="name: a\n", model_dir="run", arguments=arguments)  # fmt: skip

    _, (call,) = _run(manifest(order, Slurm()), tmp_path)

    assert tuple(call[-3:]) == arguments


def test_flag_values_cannot_add_directives(printed: Printed) -> None:
    text = printed("slurm", "--experiment=digits", "--model_dir=a\n#SBATCH --nodes=900\nrm -r b")

    assert _directives(text)["nodes"] == "1"
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
    assert seconds_of(text) == seconds


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
