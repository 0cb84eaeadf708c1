"""Manifests of sweeps: a job array for Slurm, and an indexed Job for Kubernetes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.manifest_experiments import TRICKY
from tests.support.slurm_scripts import directives, run_script
from tests.sweep.sweep_files import TEXT, write

Printed = Callable[..., str]
KUBERNETES = ("kubernetes", "--sweep=s.yaml", "--image=registry.example/runner:1",
              "--volume_claim=runs")  # fmt: skip
ELEMENT = {"SLURM_ARRAY_JOB_ID": "40", "SLURM_ARRAY_TASK_ID": "1"}
# A fake `srun` that keeps the file that it is given.
KEEPER = '#!/bin/bash\n[ "$1 $2" = "runner sweep" ] && cp "$3" kept.yaml && touch calls\n'


@pytest.fixture(autouse=True)
def file(tmp_path: Path) -> Path:
    """A sweep file of eight trials; manifests are printed in its directory."""
    return write(tmp_path)


def _job(text: str) -> dict[str, Any]:
    _, job = yaml.safe_load_all(text)
    return dict(job)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["--workers=4"],
            {"job-name": "sweep-digits-mlp", "array": "0-3", "nodes": "1", "ntasks": "1",
             "requeue": "", "signal": "TERM@120", "open-mode": "append",
             "output": "%x-%A_%a.log"},
        ),
        (
            ["--workers=2", "--jobs=2", "--cpus=8", "--memory=16Gi", "--time=1-2", "--name=a",
             "--partition=gpu", "--account=us", "--nodes=1"],
            {"job-name": "a", "array": "0-1", "cpus-per-task": "8", "mem-per-cpu": "2048M",
             "time": "1-02:00:00", "partition": "gpu", "account": "us"},
        ),
    ],
)  # fmt: skip
def test_slurm_array_requests_the_given_resources(
    printed: Printed, arguments: list[str], expected: dict[str, str]
) -> None:
    found = directives(printed("slurm", "--sweep=s.yaml", *arguments))

    assert {name: found.get(name) for name in expected} == expected


def test_gpus_are_those_of_all_trials_of_a_process(printed: Printed, file: Path) -> None:
    file.write_text(TEXT.replace("overrides:\n", "overrides:\n  runtime: {num_gpus: 1}\n"))
    flags = ["--sweep=s.yaml", "--workers=2", "--jobs=2", "--devices_per_job=1"]

    assert directives(printed("slurm", *flags))["gpus-per-task"] == "2"
    assert directives(printed("slurm", *flags, "--gpus_per_worker=4"))["gpus-per-task"] == "4"
    job = _job(printed(*KUBERNETES, *flags[1:]))
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "2"}


def test_slurm_element_runs_the_sweep_in_the_shared_directory(
    printed: Printed, tmp_path: Path
) -> None:
    text = printed("slurm", "--sweep=s.yaml", "--workers=2", "--model_dir=a b/$x", "--jobs=2",
                   "--seeds=3", "--cold", "--import=json", "--cpus=4")  # fmt: skip

    code, (call,) = run_script(text, tmp_path, **ELEMENT)

    assert code == 0
    assert call[:4] == ["srun", "--cpus-per-task=4", "runner", "sweep"]
    copy, *rest = call[4:]
    assert rest == ["--model_dir=a b/$x", "--jobs=2", "--seeds=3", "--cold", "--import=json"]
    assert copy.endswith("/sweep.yaml")
    assert not os.path.exists(os.path.dirname(copy))


@pytest.mark.parametrize(
    "content",
    [
        f"# {TRICKY}\n{TEXT}".rstrip("\n"),
        '{"description": "a\nEND_OF_EXPERIMENT\nb", ' + json.dumps(yaml.safe_load(TEXT))[1:],
    ],
    ids=["special characters", "end of the document"],
)
def test_slurm_element_gets_the_sweep_file(
    printed: Printed, file: Path, tmp_path: Path, content: str
) -> None:
    file.write_text(content)
    text = printed("slurm", "--sweep=s.yaml", "--workers=2")
    run_script(text, tmp_path, srun=KEEPER, **ELEMENT)

    assert (tmp_path / "kept.yaml").read_text() == file.read_text() + "\n"


@pytest.mark.parametrize(
    ("code", "before", "again"),
    [
        ("0", "", False),
        ("1", "", False),
        ("2", "", False),
        ("137", "", False),
        ("138", "1", True),
        ("139", "1", True),
        ("143", "", True),
        ("143", "2", False),
    ],
)
def test_only_the_element_that_was_preempted_is_requeued(
    printed: Printed, tmp_path: Path, code: str, before: str, again: bool
) -> None:
    text = printed("slurm", "--sweep=s.yaml", "--workers=2", "--max_restarts=2")
    environ = {"SRUN_CODE": code} | ({"SLURM_RESTART_COUNT": before} if before else {})

    ended, calls = run_script(text, tmp_path, **ELEMENT, **environ)

    assert ended == int(code)
    assert calls[1:] == ([["scontrol", "requeue", "40_1"]] if again else [])


def test_flag_values_cannot_add_lines_to_the_script(printed: Printed) -> None:
    folder = "--model_dir=a\n#SBATCH --nodes=900\nrm -r b"
    text = printed("slurm", "--sweep=s.yaml", "--workers=2", folder)

    assert directives(text)["nodes"] == "1"
    assert "\n# #SBATCH --nodes=900\n" in text


@pytest.mark.parametrize("more", [[], ["--cpus=4", "--memory=16Gi", "--time=90", "--namespace=a"]])
def test_kubernetes_job_has_a_pod_for_each_process(
    printed: Printed, valid: Callable[[Any, str], None], more: list[str]
) -> None:
    job = _job(printed(*KUBERNETES, "--workers=4", "--max_restarts=3", *more))

    valid(job, "job")
    spec = job["spec"]
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"] == 4
    assert spec["backoffLimit"] == 12
    assert spec["template"]["spec"]["restartPolicy"] == "Never"
    (rule,) = spec["podFailurePolicy"]["rules"]
    assert {1, 2} <= {*rule["onExitCodes"]["values"]}
    assert not {137, 138, 139, 143} & {*rule["onExitCodes"]["values"]}


def test_kubernetes_pods_run_the_sweep_on_the_claim(
    printed: Printed, valid: Callable[[Any, str], None], file: Path
) -> None:
    text = printed(*KUBERNETES, "--workers=2", "--jobs=2", "--name=a")
    config_map, job = yaml.safe_load_all(text)

    valid(config_map, "config_map")
    assert config_map["data"] == {"sweep.yaml": file.read_text()}
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["runner", "sweep"]
    mounted = next(m for m in container["volumeMounts"] if m["name"] == "experiment")["mountPath"]
    assert container["args"] == [f"{mounted}/sweep.yaml", "--model_dir=/runs/a", "--jobs=2"]
    assert {"name": "volume-0", "mountPath": "/runs"} in container["volumeMounts"]


def test_own_files_that_the_sweep_needs_are_listed(
    printed: Printed, file: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine.yaml").write_text("trainer: {train_steps: 30}\n")
    own = "config_file: [mine.yaml, configs/runtime/cpu.yaml]\n"
    file.write_text(own + TEXT)

    text = printed("slurm", "--sweep=s.yaml", "--workers=2")

    assert "# Required where the experiment runs:\n#   config_file: mine.yaml\n# The" in text
