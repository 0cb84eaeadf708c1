"""The examples in `configs/clusters/`: they are read, and each process resolves its command."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from orbit_runner.cli.command import parse_flags
from orbit_runner.cli.commands import run
from orbit_runner.cli.flags.config_flags import build_request
from orbit_runner.config.resolve import resolve
from orbit_runner.config.schema.partitioning import batch_problems
from orbit_runner.distribute.cluster.resolver import resolve_cluster
from tests.support.processes import process

ROOT = Path(__file__).resolve().parents[2]
CLUSTERS = ROOT / "configs" / "clusters"
BASH = shutil.which("bash") or pytest.skip("there is no bash", allow_module_level=True)
# Writes its words and TF_CONFIG as a line of JSON, and exits as told.
RECORDER = """#!/usr/bin/env python3
import json, os, sys
with open("calls", "a") as file:
    file.write(json.dumps([[os.path.basename(sys.argv[0]), *sys.argv[1:]],
                           os.environ.get("TF_CONFIG")]) + "\\n")
sys.exit(int(os.environ.get(os.path.basename(sys.argv[0]) + "_code", "0")))
"""


class Process(NamedTuple):
    """The command line of a process, and its environment."""

    words: list[str]
    environ: dict[str, str]


def run_script(
    name: str, folder: Path, *arguments: str, **environ: str
) -> tuple[int, list[Process]]:
    """Runs a script; returns its exit code and the commands that it called."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    for program in ("runner", "srun", "scontrol"):
        (programs / program).write_text(RECORDER)
        (programs / program).chmod(0o755)
    (folder / "calls").unlink(missing_ok=True)
    env = {"PATH": os.pathsep.join([str(programs), os.environ["PATH"]]), **environ}
    completed = process(BASH, CLUSTERS / name, *arguments, cwd=folder, env=env)
    assert completed.stderr == ""
    calls = [json.loads(line) for line in (folder / "calls").read_text().splitlines()]
    return completed.returncode, [
        Process(words, {"TF_CONFIG": text} if text else {}) for words, text in calls
    ]


def kubernetes_processes(folder: Path) -> Iterator[Process]:
    """Does what Kubernetes does: names the hosts, and replaces `$(NAME)` by a variable."""
    jobset = yaml.safe_load((CLUSTERS / "kubernetes_jobset.yaml").read_text())
    (job,) = jobset["spec"]["replicatedJobs"]
    spec = job["template"]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    index, cluster = container["env"]
    name, count = jobset["metadata"]["name"], spec["completions"]
    assert count == spec["parallelism"]
    assert json.loads(cluster["value"].replace("$(TASK_INDEX)", "0"))["cluster"] == {
        "worker": [f"{name}-{job['name']}-0-{number}.{name}:2222" for number in range(count)]
    }
    volumes = {volume["name"] for volume in spec["template"]["spec"]["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    for number in range(count):
        value = cluster["value"].replace(f"$({index['name']})", str(number))
        yield Process([*container["command"], *container["args"]], {"TF_CONFIG": value})


def slurm_processes(folder: Path) -> Iterator[Process]:
    """Does what `srun` does: starts the command once per task."""
    code, (call,) = run_script("slurm.sh", folder, SLURM_JOB_ID="42")
    assert code == 0
    text = (CLUSTERS / "slurm.sh").read_text()
    assert "\n#SBATCH --nodes=4\n#SBATCH --ntasks=4\n" in text
    for rank in range(4):
        environ = {
            "SLURM_PROCID": str(rank),
            "SLURM_STEP_NUM_TASKS": "4",
            "SLURM_STEP_NODELIST": "n[1-4]",
            "SLURM_STEP_TASKS_PER_NODE": "1(x4)",
        }
        yield Process(call.words[call.words.index("runner") :], environ)


def vertex_processes(folder: Path) -> Iterator[Process]:
    """Does what Vertex AI does: describes the cluster of the pools."""
    pools = yaml.safe_load((CLUSTERS / "vertex_ai.yaml").read_text())["workerPoolSpecs"]
    roles = ("chief", "worker", "ps", "evaluator")
    counts = {role: pool["replicaCount"] for role, pool in zip(roles, pools, strict=False)}
    cluster = {
        role: [f"training-workerpool{roles.index(role)}-ab-{i}:2222" for i in range(count)]
        for role, count in counts.items()
    }
    for role, pool in zip(roles, pools, strict=False):
        container = pool["containerSpec"]
        for index in range(counts[role]):
            task = {"type": role, "index": index, "cloud": "x"}
            value = {"cluster": cluster, "task": task, "environment": "cloud", "job": {}}
            words = [*container["command"], *container["args"]]
            yield Process(words, {"TF_CONFIG": json.dumps(value)})


def tf_config_processes(folder: Path) -> Iterator[Process]:
    for index in range(2):
        _, (call,) = run_script("tf_config.sh", folder, str(index))
        yield call


def server_processes(folder: Path) -> Iterator[Process]:
    for role, index in (("chief", 0), ("ps", 0), ("worker", 0), ("worker", 1)):
        _, (call,) = run_script("parameter_servers.sh", folder, role, str(index))
        yield call


# The file, its processes, and the number of processes of each role.
EXAMPLES: dict[str, tuple[Callable[[Path], Iterator[Process]], dict[str, int]]] = {
    "kubernetes_jobset.yaml": (kubernetes_processes, {"worker": 4}),
    "slurm.sh": (slurm_processes, {"worker": 4}),
    "vertex_ai.yaml": (vertex_processes, {"chief": 1, "worker": 3}),
    "tf_config.sh": (tf_config_processes, {"worker": 2}),
    "parameter_servers.sh": (server_processes, {"chief": 1, "ps": 1, "worker": 2}),
}


def test_every_example_is_tested_and_documented():
    names = {path.name for path in CLUSTERS.iterdir()}
    page = (ROOT / "docs" / "clusters.md").read_text(encoding="utf-8")

    assert names == {*EXAMPLES}
    assert [name for name in names if f"| `{name}` |" not in page] == []


@pytest.mark.parametrize("name", EXAMPLES)
def test_processes_of_an_example_form_its_cluster(name, tmp_path):
    processes_of, roles = EXAMPLES[name]
    clusters: list[Any] = []
    for member in processes_of(tmp_path):
        assert member.words[:2] == ["runner", "run"]
        flags = parse_flags(run.COMMAND.parser(), member.words[2:])
        config = resolve(build_request(flags)).config
        assert flags.model_dir
        assert config.task.train_data.data_dir != resolve_data_dir(config.name)
        cluster = resolve_cluster(config.runtime, member.environ)
        assert [*batch_problems(config, config.runtime.num_replicas(len(cluster.trainers())))] == []
        clusters.append(cluster)

    members = [(cluster.me.role, cluster.me.index) for cluster in clusters]
    assert sorted(members) == sorted((role, i) for role, n in roles.items() for i in range(n))
    assert [cluster.jobs for cluster in clusters] == [clusters[0].jobs] * len(clusters)
    assert sum(cluster.is_chief for cluster in clusters) == 1


def resolve_data_dir(experiment: str) -> str:
    """Returns the default directory of the data, which is that of one machine."""
    flags = parse_flags(run.COMMAND.parser(), [f"--experiment={experiment}"])
    return str(resolve(build_request(flags)).config.task.train_data.data_dir)


@pytest.mark.parametrize(
    ("code", "before", "again"),
    [
        *((code, "", False) for code in ("0", "1", "137")),
        ("138", "", True),
        ("139", "", True),
        ("143", "9", True),
        ("143", "10", False),
    ],
)
def test_slurm_job_is_requeued_only_after_losses_and_within_the_limit(
    tmp_path, code, before, again
):
    environ = {"SLURM_RESTART_COUNT": before} if before else {}

    ended, calls = run_script("slurm.sh", tmp_path, SLURM_JOB_ID="42", srun_code=code, **environ)

    assert ended == int(code)
    requeued = [call.words for call in calls[1:]]
    assert requeued == ([["scontrol", "requeue", "42"]] if again else [])


def test_slurm_steps_get_the_cpus_of_the_job(tmp_path):
    _, (call,) = run_script("slurm.sh", tmp_path, SLURM_JOB_ID="42", SLURM_CPUS_PER_TASK="8")

    assert call.words[:2] == ["srun", "--cpus-per-task=8"]
