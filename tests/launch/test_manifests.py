"""What Kubernetes, Slurm and Vertex AI make of manifests; functions here do what they do."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from orbit_runner.cli.command import Parser, parse_flags
from orbit_runner.cli.flags.config_flags import add_config_flags, build_request
from orbit_runner.cli.main import main
from orbit_runner.config.resolve import resolve
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.distribute.cluster.resolver import resolve_cluster
from tests.support.hold import NAME, hold_environ, is_held, release
from tests.support.launches import SECONDS, wait_for
from tests.sweep.sweep_files import TEXT, write

BASH = shutil.which("bash") or pytest.skip("there is no bash", allow_module_level=True)
SCHEMAS = Path(__file__).parent / "schemas"
FLAGS = {
    "kubernetes": ["--image=registry.example/runner:1", "--name=a-job"],
    "slurm": ["--model_dir=shared/run"],
    "vertex": ["--image=registry.example/runner:1", "--model_dir=/gcs/bucket/run"],
}
MIRRORED = "--distribution_strategy=multi_worker_mirrored"
SERVED = "--distribution_strategy=parameter_server"
# Name: flags, the same as settings, and the number of processes of each role.
CASES: dict[str, tuple[list[str], list[str], dict[str, int]]] = {
    "one process": ([], [], {"worker": 1}),
    "mirrored": (
        ["--distribution_strategy=mirrored", "--gpus_per_worker=4"],
        ["--distribution_strategy=mirrored", "--runtime.num_gpus=4"],
        {"worker": 1},
    ),
    "workers of the config": (
        [MIRRORED, "--runtime.num_workers=4", "--num_gpus=2"],
        [MIRRORED, "--runtime.num_workers=4", "--runtime.num_gpus=2"],
        {"worker": 4},
    ),
    "with evaluator": (
        [MIRRORED, "--workers=2", "--evaluator"],
        [MIRRORED, "--runtime.num_workers=2", "--runtime.num_evaluators=1"],
        {"worker": 2, "evaluator": 1},
    ),
    "servers": (
        [SERVED, "--workers=3", "--ps=2", "--gpus-per-worker=1"],
        [SERVED, "--runtime.num_workers=3", "--runtime.num_parameter_servers=2", "--num_gpus=1"],
        {"chief": 1, "ps": 2, "worker": 3},
    ),
    "all roles": (
        [SERVED, "--workers=1", "--evaluator"],
        [SERVED, "--runtime.num_workers=1", "--runtime.num_evaluators=1"],
        {"chief": 1, "ps": 1, "worker": 1, "evaluator": 1},
    ),
}
# Texts that a shell, YAML, Kubernetes or the script itself could read as something else.
TRICKY = "it's \"$HOME\" $(date) `x` ${y} $name \\n: # - 'a', %x 1e3 ünï 日本 END_OF_EXPERIMENT"
# A fake `srun` and `scontrol` that records its arguments. `srun` keeps the sweep file.
RECORDER = """\
#!/bin/bash
printf '%s\\0' "$(basename "$0")" "$@" >> calls
printf '\\n' >> calls
[ "$(basename "$0")" = scontrol ] && exit 0
while [ "$1" != runner ]; do shift; done
[ "$2" = sweep ] && cp "$3" kept.yaml
exit "${SRUN_CODE:-0}"
"""
ELEMENT = {"SLURM_ARRAY_JOB_ID": "40", "SLURM_ARRAY_TASK_ID": "1"}
Printed = Callable[..., str]


@pytest.fixture
def printed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Printed:
    """Runs `runner manifest` outside the checkout, and returns its output, which is valid."""
    monkeypatch.chdir(tmp_path)

    def run(place: str, *arguments: str) -> str:
        assert main(["manifest", place, *arguments]) == 0, capsys.readouterr().err
        said = capsys.readouterr()
        assert said.err == ""
        if place != "slurm":
            check_documents(place, said.out)
        return said.out

    return run


def check_documents(place: str, text: str) -> None:
    jsonschema = pytest.importorskip("jsonschema")  # The lock has it from Python 3.11 on.
    rules = json.loads((SCHEMAS / f"{place}.json").read_text())
    for document in yaml.safe_load_all(text):
        rule = {"$ref": f"#/$defs/{document['kind']}"} if place == "kubernetes" else {}
        errors = jsonschema.Draft202012Validator(rules | rule).iter_errors(document)
        assert [f"{error.json_path}: {error.message[:200]}" for error in errors] == []


def config_of(*arguments: str) -> ExperimentConfig:
    """Returns what `runner run` resolves."""
    parser = Parser("run")
    parser.add_argument("--model_dir")
    parser.add_argument("--mode")
    add_config_flags(parser)
    return resolve(build_request(parse_flags(parser, arguments))).config


def job_specs(text: str) -> dict[str, dict[str, Any]]:
    """Returns the spec of the Kubernetes job of each role."""
    _, job = yaml.safe_load_all(text)
    if job["kind"] == "Job":
        return {"worker": job["spec"]}
    return {item["name"]: item["template"]["spec"] for item in job["spec"]["replicatedJobs"]}


def container_of(spec: dict[str, Any]) -> dict[str, Any]:
    (container,) = spec["template"]["spec"]["containers"]
    return dict(container)


def directives(text: str) -> dict[str, str]:
    """Reads as `sbatch` does: up to the first line that is not a comment."""
    found = {}
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            break
        if line.startswith("#SBATCH "):
            name, _, value = line.removeprefix("#SBATCH --").partition("=")
            found[name] = value
    return found


def run_script(text: str, folder: Path, **environ: str) -> tuple[int, list[list[str]]]:
    """Runs a Slurm script; returns its exit code and the commands that it called."""
    (folder / "bin").mkdir(exist_ok=True)
    for name in ("srun", "scontrol"):
        (folder / "bin" / name).write_text(RECORDER)
        (folder / "bin" / name).chmod(0o755)
    path = os.pathsep.join([str(folder / "bin"), os.environ["PATH"]])
    done = subprocess.run(
        [BASH, "-s"], input=text, cwd=folder, env={"PATH": path, "SLURM_JOB_ID": "42", **environ},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    calls = (folder / "calls").read_text().split("\n")
    return done.returncode, [call.split("\0")[:-1] for call in calls if call]


class Process(NamedTuple):
    """The command line of a process, and its environment."""

    words: list[str]
    environ: dict[str, str]


def kubernetes_processes(text: str, folder: Path) -> Iterator[Process]:
    """Does what the kubelet does: `$$` is `$`, and `$(NAME)` the value of a variable."""
    config_map, _ = yaml.safe_load_all(text)
    for spec in job_specs(text).values():
        container = container_of(spec)
        for mount in container["volumeMounts"]:
            if mount["name"] == "experiment":
                for name, content in config_map["data"].items():
                    (folder / name).write_text(content)
        arguments = [word.split("$$") for word in container["args"]]
        assert not any("$(" in part for parts in arguments for part in parts)
        words = ["$".join(parts).replace("/etc/orbit-runner", str(folder)) for parts in arguments]
        index, cluster = container["env"]
        for number in range(spec["completions"]):
            value = cluster["value"].replace(f"$({index['name']})", str(number))
            yield Process([*container["command"], *words], {"TF_CONFIG": value})


def slurm_processes(text: str, folder: Path) -> Iterator[Process]:
    """Does what `srun` does: starts the command once per task."""
    code, (call,) = run_script(text, folder)
    assert code == 0
    tasks = directives(text)["ntasks"]
    for rank in range(int(tasks)):
        environ = {
            "SLURM_PROCID": str(rank),
            "SLURM_STEP_NUM_TASKS": tasks,
            "SLURM_STEP_NODELIST": "n1",
            "SLURM_STEP_TASKS_PER_NODE": tasks,
        }
        yield Process(call[call.index("runner") :], environ)


def vertex_processes(text: str, folder: Path) -> Iterator[Process]:
    """Does what Vertex AI does: no `TF_CONFIG` for one replica; no evaluators in the cluster."""
    pools = yaml.safe_load(text)["workerPoolSpecs"]
    roles = ("chief", "worker", "ps", "evaluator")
    counts = {r: pool.get("replicaCount", 0) for r, pool in zip(roles, pools, strict=False)}
    cluster = {
        role: [f"training-workerpool{roles.index(role)}-ab-{i}:2222" for i in range(count)]
        for role, count in counts.items()
        if count and role != "evaluator"
    }
    for role, pool in zip(roles, pools, strict=False):
        for index in range(counts[role]):
            task = {"type": role, "index": index, "cloud": "x"}
            value = {"cluster": cluster, "task": task, "environment": "cloud", "job": {}}
            environ = {"TF_CONFIG": json.dumps(value)} if sum(counts.values()) > 1 else {}
            container = pool["containerSpec"]
            yield Process([*container["command"], *container["args"]], environ)


PROCESSES = {
    "kubernetes": kubernetes_processes,
    "slurm": slurm_processes,
    "vertex": vertex_processes,
}


@pytest.mark.sample(9)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("place", PROCESSES)
def test_processes_form_the_given_cluster_and_run_the_given_experiment(
    printed: Printed, tmp_path: Path, place: str, case: str
) -> None:
    flags, settings, roles = CASES[case]
    text = printed(place, "--experiment=digits_mlp", *FLAGS[place], *flags, "--mode=train")

    found = []
    for process in PROCESSES[place](text, tmp_path):
        assert process.words[:2] == ["runner", "run"]
        assert process.words[-1] == "--mode=train"
        config = config_of(*process.words[2:])
        assert config == config_of("--experiment=digits_mlp", *settings)
        found.append(resolve_cluster(config.runtime, process.environ))

    assert len(found) == sum(roles.values())
    if len(found) > 1:
        members = [cluster.me for cluster in found if cluster]
        named = [member.role for member in members]
        expected = dict(roles)
        if place == "vertex" and "chief" not in roles:  # One of the workers is the chief.
            expected |= {"chief": 1, "worker": roles["worker"] - 1}
        assert {role: named.count(role) for role in named} == expected
        assert sum(cluster.is_chief for cluster in found if cluster) == 1
    else:
        assert found == [None]
    if place == "kubernetes" and len(found) > 1:
        assert '"evaluator": [' not in text  # It does not communicate with the others.
        for member in members:  # jobset-replicatedjob-jobindex-podindex.subdomain
            host = f"a-job-{member.role}-0-{member.index}.a-job"
            assert member.role == "evaluator" or member.address == f"{host}:2222"


@pytest.mark.parametrize("place", PROCESSES)
@pytest.mark.parametrize("text", [TRICKY, "two lines\u2028separated \x07"])
def test_special_characters_survive(
    printed: Printed, tmp_path: Path, place: str, text: str
) -> None:
    description = json.dumps({"description": text})
    folder = {"kubernetes": "/runs/", "vertex": "/gcs/b/"}.get(place, "") + "a $(b) $$c 'd' `e`"

    shown = printed(
        *(place, *FLAGS[place], "--experiment=digits", f"--params_override={description}"),
        *(f"--model_dir={folder}", "--resume=override"),
    )

    (process,) = PROCESSES[place](shown, tmp_path)
    assert process.words[-2:] == [f"--model_dir={folder}", "--resume=override"]
    assert config_of(*process.words[2:-1]).description == text


def test_resources_are_those_of_each_role(printed: Printed) -> None:
    flags = ["--experiment=digits", *CASES["servers"][0]]

    specs = job_specs(printed("kubernetes", *FLAGS["kubernetes"], *flags))
    limits = {role: container_of(spec)["resources"]["limits"] for role, spec in specs.items()}
    assert limits == {"chief": {}, "ps": {}, "worker": {"nvidia.com/gpu": "1"}}
    found = directives(printed("slurm", *flags))
    assert (found["nodes"], found["ntasks"], found["gpus-per-task"]) == ("3", "6", "1")
    assert "gpus-per-task" not in directives(printed("slurm", "--experiment=digits"))
    pools = yaml.safe_load(printed("vertex", *FLAGS["vertex"], *flags))["workerPoolSpecs"]
    assert [pool["machineSpec"].get("acceleratorCount") for pool in pools] == [None, 1, None]
    text = printed("vertex", *FLAGS["vertex"], "--experiment=digits", *CASES["with evaluator"][0])
    pools = yaml.safe_load(text)["workerPoolSpecs"]
    assert [pool.get("replicaCount") for pool in pools] == [1, 1, None, 1]


@pytest.mark.parametrize(
    ("case", "leading"),
    [("with evaluator", []), ("servers", ["chief"]), ("all roles", ["chief", "evaluator"])],
)
def test_lost_pods_restart_the_jobset_until_training_and_evaluation_end(
    printed: Printed, case: str, leading: list[str]
) -> None:
    text = printed("kubernetes", *FLAGS["kubernetes"], "--experiment=digits", *CASES[case][0])

    _, job = yaml.safe_load_all(text)
    assert job["spec"]["successPolicy"] == {"operator": "All", "targetReplicatedJobs": leading}
    assert job["spec"]["failurePolicy"]["maxRestarts"] == 10
    for spec in job_specs(text).values():
        (rule,) = spec["podFailurePolicy"]["rules"]
        assert {1, 2, 3} <= {*rule["onExitCodes"]["values"]}
        assert not {137, 138, 139, 143} & {*rule["onExitCodes"]["values"]}
        assert spec["backoffLimit"] == 0


@pytest.mark.parametrize("place", ["kubernetes", "vertex"])
def test_fields_in_comments_are_valid_once_they_are_used(printed: Printed, place: str) -> None:
    text = printed(place, *FLAGS[place], "--experiment=digits", *CASES["servers"][0])

    used, count = re.subn(r"(?m)^( +)# (?=\w+: |- \{)", r"\1", text)

    assert count == {"kubernetes": 3 * 7, "vertex": 1}[place]
    check_documents(place, used)
    assert "activeDeadlineSeconds: 86400" in used or "timeout: 86400s" in used


def test_directives_in_comments_are_used_once_a_character_is_removed(printed: Printed) -> None:
    text = printed("slurm", "--experiment=digits")

    more = directives(text.replace("##SBATCH", "#SBATCH")).keys() - directives(text).keys()

    assert more == {"time", "partition", "account", "cpus-per-task", "mem-per-cpu"}


def test_steps_get_the_cpus_of_the_job(printed: Printed, tmp_path: Path) -> None:
    _, (call,) = run_script(
        printed("slurm", "--experiment=digits"), tmp_path, SLURM_CPUS_PER_TASK="8"
    )

    assert "--cpus-per-task=8" in call[: call.index("runner")]


def test_grace_period_is_that_of_the_config_if_longer(printed: Printed) -> None:
    flags = ["--experiment=digits", "--runtime.grace_period=299.5"]

    assert directives(printed("slurm", *flags))["signal"] == "TERM@300"
    assert directives(printed("slurm", *flags[:1]))["signal"] == "TERM@120"
    (spec,) = job_specs(printed("kubernetes", *FLAGS["kubernetes"], *flags)).values()
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] == 300


@pytest.mark.parametrize(
    ("flags", "environ", "job"),
    [
        (["--experiment=digits"], {}, "42"),
        (["--sweep=s.yaml", "--workers=2"], ELEMENT, "40_1"),
    ],
    ids=["experiment", "sweep"],
)
@pytest.mark.parametrize(
    ("code", "before", "again"),
    [
        *((code, "", False) for code in ("0", "1", "2", "3", "137")),
        ("138", "", True),
        ("139", "", True),
        ("143", "9", True),
        ("143", "10", False),
    ],
)
def test_slurm_job_is_requeued_only_after_losses_and_within_the_limit(
    printed: Printed, tmp_path: Path, flags: list[str], environ: dict[str, str], job: str,
    code: str, before: str, again: bool,
) -> None:  # fmt: skip
    write(tmp_path)
    environ = {**environ, "SRUN_CODE": code, **({"SLURM_RESTART_COUNT": before} if before else {})}

    ended, calls = run_script(printed("slurm", *flags), tmp_path, **environ)

    assert ended == int(code)
    assert calls[1:] == ([["scontrol", "requeue", job]] if again else [])


@pytest.mark.parametrize("flags", [["--experiment=digits"], ["--sweep=s.yaml", "--workers=2"]])
def test_flag_values_cannot_add_lines_to_the_script(
    printed: Printed, tmp_path: Path, flags: list[str]
) -> None:
    write(tmp_path)

    text = printed("slurm", *flags, "--model_dir=a\n#SBATCH --nodes=900\nrm -r b")

    assert directives(text)["nodes"] == "1"
    assert "\n# #SBATCH --nodes=900\n" in text


def test_header_shows_the_command_and_what_is_needed(printed: Printed, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("trainer: {train_steps: 60}\n")
    write(tmp_path, f"config_file: [mine.yaml]\n{TEXT}")

    text = printed("slurm", "--experiment=resnet_cifar", "--data_dir=/data")
    assert "\n# Made by: runner manifest slurm --experiment=resnet_cifar --data_dir=/data\n" in text
    assert "#   task.train_data.data_dir: /data\n" in text
    assert "\n#   mine.yaml\n" in printed("slurm", "--sweep=s.yaml", "--workers=2")


@pytest.mark.parametrize(
    "content", [TEXT, f"# {TRICKY}\n{TEXT}", f'description: "a\u2028b"\n{TEXT}', f"\n \n{TEXT}\n"]
)
def test_kubernetes_pods_of_a_sweep_share_its_file_and_directory(
    printed: Printed, tmp_path: Path, content: str
) -> None:
    write(tmp_path, content)
    flags = ["--sweep=s.yaml", "--workers=4", "--jobs=2", "--image=x"]

    text = printed("kubernetes", *flags)

    (spec,) = job_specs(text).values()
    assert (spec["completions"], spec["parallelism"], spec["backoffLimit"]) == (4, 4, 40)
    (first, *_, last) = kubernetes_processes(text, tmp_path)
    file, model_dir = f"{tmp_path}/sweep.yaml", "--model_dir=/runs/sweep-digits-mlp"
    assert first.words == last.words == ["runner", "sweep", file, model_dir, "--jobs=2"]
    assert (tmp_path / "sweep.yaml").read_text() == content


@pytest.mark.parametrize(
    "content",
    [
        TEXT,
        f"# {TRICKY}\n{TEXT}".rstrip("\n"),
        '{"description": "a\nEND_OF_EXPERIMENT\nb", ' + json.dumps(yaml.safe_load(TEXT))[1:],
    ],
    ids=["plain", "special characters", "end of the document"],
)
def test_slurm_elements_get_the_sweep_file_and_share_a_directory(
    printed: Printed, tmp_path: Path, content: str
) -> None:
    write(tmp_path, content)
    text = printed("slurm", "--sweep=s.yaml", "--workers=2", "--model_dir=a b/$x", "--jobs=2",
                   "--seeds=3", "--cold", "--import=json")  # fmt: skip

    _, (call,) = run_script(text, tmp_path, **ELEMENT)

    assert directives(text)["array"] == "0-1"
    copy, *rest = call[call.index("sweep") + 1 :]
    assert rest == ["--model_dir=a b/$x", "--jobs=2", "--seeds=3", "--cold", "--import=json"]
    assert (tmp_path / "kept.yaml").read_text() == content.rstrip("\n") + "\n"
    assert not os.path.exists(copy)


def test_gpus_are_those_of_all_trials_of_a_process(printed: Printed, tmp_path: Path) -> None:
    write(tmp_path, TEXT.replace("overrides:\n", "overrides:\n  runtime: {num_gpus: 1}\n"))
    flags = ["--sweep=s.yaml", "--workers=2", "--jobs=2", "--devices_per_job=1"]

    assert directives(printed("slurm", *flags))["gpus-per-task"] == "2"


SLOW_TEXT = f"""\
experiment: digits_mlp
overrides:
  trainer: {{train_steps: 400, validation_interval: 200, checkpoint_interval: 200}}
  task.model: {{hidden_units: [16]}}
  callbacks: [{NAME}]
space:
  task.model.dropout_rate: [0.0, 0.3]
objective: {{metric: accuracy, mode: max}}
search: {{type: grid}}
"""
# Notes its process ID, and replaces itself with the command after its own flags.
SRUN = """\
#!/bin/bash
echo "$$" > "pid-$SLURM_ARRAY_TASK_ID"
while [ "$1" != runner ]; do shift; done
exec "$@"
"""
SCONTROL = '#!/bin/bash\necho "$@" >> requeued\n'


def _start_element(script: str, folder: Path, index: int, restarts: int) -> subprocess.Popen[str]:
    """Starts an element of an array as Slurm does."""
    environ = {
        "PATH": os.pathsep.join([str(folder / "bin"), os.environ["PATH"]]),
        "SLURM_JOB_ID": str(40 + index),
        "SLURM_ARRAY_JOB_ID": "40",
        "SLURM_ARRAY_TASK_ID": str(index),
        "SLURM_RESTART_COUNT": str(restarts),
        "SLURM_NTASKS": "1",
    }
    process = subprocess.Popen(
        [BASH, "-s"], cwd=folder, env={**os.environ, **environ, **hold_environ(folder)}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(script)
    process.stdin.close()
    process.stdin = None
    return process


def _tree(root: int) -> list[int]:
    """Returns a process and all below it."""
    found = [root]
    for pid in found:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        found += [int(child) for child in children]
    return found


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_preempted_element_continues_the_sweep_together_with_another(
    printed: Printed, tmp_path: Path
) -> None:
    write(tmp_path, SLOW_TEXT)
    # Once: no program may change while it starts.
    runner = f'#!/bin/bash\nexec "{sys.executable}" -m orbit_runner "$@"\n'
    (tmp_path / "bin").mkdir()
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL), ("runner", runner)):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    script = printed("slurm", "--sweep=s.yaml", "--workers=2", "--model_dir=shared/sweep")

    first = _start_element(script, tmp_path, 0, restarts=0)
    wait_for(lambda: is_held(tmp_path) or first.poll() is not None)
    for pid in _tree(int((tmp_path / "pid-0").read_text())):
        os.kill(pid, signal.SIGTERM)  # Slurm sends it to all processes of a step.
    release(tmp_path)  # The run saves a checkpoint and ends.
    _, err = first.communicate(timeout=SECONDS)
    assert first.returncode == 143, err
    assert (tmp_path / "requeued").read_text() == "requeue 40_0\n"
    elements = [_start_element(script, tmp_path, i, restarts=1 - i) for i in range(2)]
    for element in elements:
        _, err = element.communicate(timeout=SECONDS)
        assert element.returncode == 0, err

    found = json.loads((tmp_path / "shared/sweep/sweep.json").read_text())
    assert [trial["status"] for trial in found["trials"]] == ["finished", "finished"]
    log = (tmp_path / "shared/sweep/logs/0000.log").read_text()
    (saved,) = re.findall(r"SIGTERM: saved at step (\d+)", log)
    assert f"\nrestored step {saved} from " in log
    # The elements did not train a run twice.
    assert log.count("training from step") == 2
    assert (tmp_path / "shared/sweep/logs/0001.log").read_text().count("training from step") == 1
    assert (tmp_path / "requeued").read_text() == "requeue 40_0\n"
