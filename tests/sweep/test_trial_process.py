"""A process trains several trials; each is like one in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from orbit_runner.sweep.trial_process import TrialCommand, TrialProcess
from tests.support.launches import alive, wait_for

SHORT = (
    *(
        "run",
        "--experiment=digits_mlp",
        "--trainer.train_steps=40",
        "--trainer.summary_interval=10",
    ),
    *("--trainer.validation_interval=20", "--trainer.checkpoint_interval=20"),
)
# Times and speeds.
_VARYING = ("time", "steps_per_second", "examples_per_second", "tflops_per_second", "mfu")
_started: list[TrialProcess] = []


@pytest.fixture(autouse=True)
def _killed():
    yield
    while _started:
        _started.pop().kill()


def start(command: TrialCommand) -> TrialProcess:
    _started.append(TrialProcess(command))
    return _started[-1]


def trial(run: Path, *arguments: str, **more: Any) -> TrialCommand:
    values = {"environ": {**os.environ}, "cores": (), "log": run.with_suffix(".log"), **more}
    return TrialCommand(arguments=(*arguments, f"--model_dir={run}"), **values)


def end_of(process: TrialProcess) -> int | None:
    wait_for(lambda: process.poll() is not None)
    return process.poll()


def texts(run: Path) -> list[str]:
    """The files that are equal in all runs, and the names of the others."""
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    records = [
        {k: v for k, v in line.items() if k not in _VARYING and not k.startswith("system/")}
        for line in lines
    ]
    config = (run / "config.yaml").read_text().partition("\n")[2]  # without the directory
    names = ("checkpoints/fingerprints.jsonl", "operative_config.gin", "data.json")
    files = sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file())
    attempt = json.loads((run / "run.json").read_text())["attempts"][0]
    return [
        *((run / name).read_text() for name in names),
        *(config, str(records), str([*attempt])),
        *(name for name in files if "tfevents" not in name),
    ]


@pytest.mark.slow
def test_second_trial_of_a_process_equals_the_first_one(tmp_path):
    process = start(trial(tmp_path / "other", *SHORT, "--seed=5"))
    assert end_of(process) == 0
    command = trial(tmp_path / "second", *SHORT)
    assert process.can_train(command)
    process.train(command)
    assert not process.can_train(command)
    assert end_of(process) == 0, command.log.read_text()
    first = start(trial(tmp_path / "first", *SHORT))
    assert end_of(first) == 0

    assert texts(tmp_path / "second") == texts(tmp_path / "first")
    assert first.pid != process.pid
    assert "training from step 0 to 40" in command.log.read_text()
    changes = ({"environ": {**os.environ, "A": "1"}}, {"cores": (0,)}, {"runtime": {"seed": 1}})
    for change in changes:
        assert not process.can_train(trial(tmp_path / "third", *SHORT, **change))


@pytest.mark.slow
def test_process_ends_with_a_trial_that_fails_or_is_stopped(tmp_path):
    failing = trial(tmp_path / "a", "run", "--experiment=none_such")
    process = start(failing)
    assert end_of(process) == 2
    assert "none_such" in failing.log.read_text()
    assert not process.can_train(failing)

    endless = trial(tmp_path / "b", *SHORT, "--trainer.train_steps=100000000")
    for number, code in ((signal.SIGTERM, 143), (signal.SIGKILL, -9)):
        process = start(endless)
        wait_for((tmp_path / "b" / "metrics.jsonl").exists)
        process.send_signal(number)
        assert end_of(process) == code
        assert not alive(process.pid)
        process.send_signal(number)  # Has no effect.
    assert "SIGTERM: saved at step" in endless.log.read_text()


@pytest.mark.slow
def test_state_of_a_trial_in_its_process(tmp_path):
    (tmp_path / "probe_of_trial.py").write_text(_PROBE)
    environ = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ['PYTHONPATH']}"}
    cores = (max(os.sched_getaffinity(0)),)
    arguments = ("list", "--import=probe_of_trial")
    command = TrialCommand(
        arguments=arguments, environ=environ, cores=cores, log=tmp_path / "logs" / "0.log"
    )
    assert end_of(start(command)) == 0, command.log.read_text()

    state = json.loads(command.log.read_text().splitlines()[0])
    new_process = [sys.executable, "-m", "orbit_runner", *arguments]
    assert state == [[*cores], True, "/dev/null", [*arguments], new_process, os.getcwd()]


_PROBE = """\
import json, os, sys
print(json.dumps([
    sorted(os.sched_getaffinity(0)), os.getsid(0) == os.getpid(), os.readlink("/proc/self/fd/0"),
    sys.argv[1:], sys.orig_argv, os.getcwd(),
]), flush=True)
"""
