"""Trials that are forked from a warm parent: equal weights, exit codes, signals, kills."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orbit_runner.sweep.cold_launcher import ColdLauncher
from orbit_runner.sweep.warm_launcher import WarmLauncher
from tests.support.hold import NAME, hold_environ, is_held, release
from tests.support.launches import alive, wait_for
from tests.support.trials import ENDLESS, SHORT, end_of, parent_of, trial

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks on Linux only")
# Times, speeds, paths and process IDs.
_VARYING = ("time", "steps_per_second", "examples_per_second", "tflops_per_second", "mfu")


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmLauncher]:
    """A launcher whose parent process the tests share."""
    found = WarmLauncher(tmp_path_factory.mktemp("sweep"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def cold_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in a process of its own."""
    run = tmp_path_factory.mktemp("cold") / "run"
    log = run.with_suffix(".log")
    command = trial(log, "run", *SHORT, f"--model_dir={run}")
    assert end_of(ColdLauncher().start(command)) == 0, log.read_text()
    return run


def files_of(run: Path) -> list[str]:
    """The names of the files of a run, except those that contain a time or process ID."""
    found = [str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()]
    return sorted(name for name in found if "tfevents" not in name)


def records(run: Path) -> list[dict[str, Any]]:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [
        {
            name: value
            for name, value in json.loads(line).items()
            if name not in _VARYING and not name.startswith("system/")
        }
        for line in lines
    ]


def config(run: Path) -> str:
    """The config without its first line, which names the directory."""
    return (run / "config.yaml").read_text().partition("\n")[2]


def weights(run: Path) -> str:
    return (run / "checkpoints" / "fingerprints.jsonl").read_text()


def steps(run: Path) -> int:
    path = run / "metrics.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.mark.slow
def test_forked_run_equals_a_cold_one(
    launcher: WarmLauncher, cold_run: Path, tmp_path: Path
) -> None:
    run, log = tmp_path / "run", tmp_path / "log"

    process = launcher.start(trial(log, "run", *SHORT, f"--model_dir={run}"))

    assert end_of(process) == 0, log.read_text()
    assert weights(run) == weights(cold_run)
    assert records(run) == records(cold_run)
    assert config(run) == config(cold_run)
    assert files_of(run) == files_of(cold_run)
    for name in ("operative_config.gin", "data.json"):
        assert (run / name).read_text() == (cold_run / name).read_text()
    forked, cold = (
        json.loads((path / "run.json").read_text())["attempts"][0] for path in (run, cold_run)
    )
    assert set(forked) == set(cold)
    assert [*forked["seconds"]] == [*cold["seconds"]]


@pytest.mark.slow
def test_sigterm_saves_and_the_next_fork_resumes(
    launcher: WarmLauncher, cold_run: Path, tmp_path: Path
) -> None:
    run, log = tmp_path / "run", tmp_path / "log"
    arguments = (*SHORT, "--trainer.steps_per_loop=1", f"--params_override=callbacks: [{NAME}]")
    command = trial(log, "run", *arguments, f"--model_dir={run}", **hold_environ(tmp_path))
    process = launcher.start(command)
    wait_for(lambda: is_held(tmp_path) or process.poll() is not None)
    process.send_signal(signal.SIGTERM)
    release(tmp_path)

    assert end_of(process) == 143, log.read_text()
    assert end_of(launcher.start(command)) == 0
    last = [path.read_text().splitlines()[-1] for path in (
        run / "checkpoints" / "fingerprints.jsonl", cold_run / "checkpoints" / "fingerprints.jsonl"
    )]  # fmt: skip
    assert json.loads(last[0])["weights"] == json.loads(last[1])["weights"]


@pytest.mark.slow
def test_sigterm_ends_with_its_own_exit_code(launcher: WarmLauncher, tmp_path: Path) -> None:
    run, log = tmp_path / "run", tmp_path / "log"
    process = launcher.start(trial(log, "run", *ENDLESS, f"--model_dir={run}"))
    wait_for(lambda: steps(run) or process.poll() is not None)

    process.send_signal(signal.SIGTERM)

    assert end_of(process) == 143, log.read_text()
    assert [*(run / "checkpoints").glob("ckpt-*.index")]
    assert json.loads((run / "run.json").read_text())["attempts"][0]["outcome"] != "done"
    process.send_signal(signal.SIGTERM)  # Has no effect.


@pytest.mark.slow
def test_trial_saves_if_all_processes_get_sigterm(
    own_launcher: WarmLauncher, tmp_path: Path
) -> None:
    run, log = tmp_path / "run", tmp_path / "log"
    process = own_launcher.start(trial(log, "run", *ENDLESS, f"--model_dir={run}"))
    wait_for(lambda: steps(run) or process.poll() is not None)

    # The parent first: a trial does not outlive it.
    for pid in (parent_of(process.pid), process.pid):
        os.kill(pid, signal.SIGTERM)

    assert end_of(process) == 143, log.read_text()
    assert "SIGTERM: saved at step" in log.read_text()


@pytest.mark.slow
def test_sigterm_right_after_the_fork_ends_the_trial(
    launcher: WarmLauncher, tmp_path: Path
) -> None:
    process = launcher.start(trial(tmp_path / "log", "run", *ENDLESS, f"--model_dir={tmp_path}"))

    process.send_signal(signal.SIGTERM)

    assert end_of(process) in (-signal.SIGTERM, 143)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("show", "--experiment=digits"), 0, "train_steps"),
        (("show", "--experiment=none_such"), 2, "none_such"),
        (("show", "--help"), 0, "usage"),
    ],
)
def test_exit_codes_and_output_reach_the_log(
    launcher: WarmLauncher, tmp_path: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")

    assert end_of(launcher.start(trial(log, *arguments))) == code
    assert log.read_text().startswith("before\n")
    assert said in log.read_text()


@pytest.mark.slow
def test_killed_trial_has_the_code_of_its_signal(launcher: WarmLauncher, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = launcher.start(trial(tmp_path / "log", "run", *ENDLESS, f"--model_dir={run}"))

    process.send_signal(signal.SIGKILL)

    assert end_of(process) == -signal.SIGKILL
    assert not alive(process.pid)


_PROBE = """\
import json, os, random, signal, sys
import numpy as np
import tensorflow as tf

print(json.dumps({
    "python": random.random(),
    "numpy": np.random.rand(),
    "mine": os.environ.get("MINE"),
    "hidden": os.environ.get("HIDDEN"),
    "cores": sorted(os.sched_getaffinity(0)),
    "session": os.getsid(0) == os.getpid(),
    "sum": float(tf.reduce_sum(tf.matmul(tf.ones([50, 50]), tf.ones([50, 50])))),
    "argv": sys.argv,
    "stdin": os.readlink("/proc/self/fd/0"),
    "child": signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL,
}), flush=True)
"""


def probed(launcher: WarmLauncher, folder: Path, name: str = "log", **more: Any) -> dict[str, Any]:
    """Returns what a user's module finds in a trial."""
    (folder / "probe_of_trial.py").write_text(_PROBE)
    log = folder / name
    command = trial(log, "list", "--import=probe_of_trial", PYTHONPATH=path_with(folder), **more)
    process = launcher.start(command)
    found = {"pid": process.pid, "parent": parent_of(process.pid)}
    assert end_of(process) == 0, log.read_text()
    (line,) = (line for line in log.read_text().splitlines() if line.startswith('{"python'))
    return {**json.loads(line), **found}


def path_with(folder: Path) -> str:
    return os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))


@pytest.fixture
def own_launcher(tmp_path: Path) -> Iterator[WarmLauncher]:
    """A launcher of one test."""
    found = WarmLauncher(tmp_path)
    yield found
    found.close()


@pytest.mark.slow
def test_trial_has_its_own_process_environment_and_random_numbers(
    own_launcher: WarmLauncher, tmp_path: Path
) -> None:
    core = max(os.sched_getaffinity(0))
    first = probed(own_launcher, tmp_path, "a", cores=(core,), CUDA_VISIBLE_DEVICES="")
    second = probed(own_launcher, tmp_path, "b", cores=(core,), CUDA_VISIBLE_DEVICES="7")

    assert first["parent"] == second["parent"] != os.getpid()
    assert first["pid"] != second["pid"]
    assert first["cores"] == [core]
    assert first["session"]
    assert first["child"]
    assert first["argv"] == ["runner", "list", "--import=probe_of_trial"]
    assert first["stdin"] == os.devnull
    assert first["sum"] == 50.0**3
    assert first["python"] != second["python"]
    assert first["numpy"] != second["numpy"]


@pytest.mark.slow
def test_other_environment_has_a_parent_of_its_own(
    own_launcher: WarmLauncher, tmp_path: Path
) -> None:
    first = probed(own_launcher, tmp_path, "a", MINE="1", HIDDEN="2")
    second = probed(own_launcher, tmp_path, "b", MINE="3")

    assert (first["mine"], first["hidden"]) == ("1", "2")
    assert (second["mine"], second["hidden"]) == ("3", None)
    assert second["parent"] != first["parent"]
    wait_for(lambda: not alive(first["parent"]))


@pytest.mark.slow
def test_changed_module_is_imported_again(own_launcher: WarmLauncher, tmp_path: Path) -> None:
    module = tmp_path / "sitecustomize.py"
    module.write_text("")
    first = probed(own_launcher, tmp_path, "a")
    again = probed(own_launcher, tmp_path, "b")
    module.write_text("changed = True\n")
    last = probed(own_launcher, tmp_path, "c")

    assert first["parent"] == again["parent"]
    assert last["parent"] not in (first["parent"], os.getpid())


@pytest.mark.slow
def test_killed_parent_ends_its_trials_and_is_replaced(
    own_launcher: WarmLauncher, tmp_path: Path
) -> None:
    run, log = tmp_path / "run", tmp_path / "log"
    command = trial(log, "run", *ENDLESS, f"--model_dir={run}")
    process = own_launcher.start(command)
    wait_for(lambda: steps(run) or process.poll() is not None)
    parent = parent_of(process.pid)

    os.kill(parent, signal.SIGKILL)

    assert end_of(process) == -signal.SIGKILL
    assert not alive(process.pid)
    assert not alive(parent)
    again = own_launcher.start(command)
    assert parent_of(again.pid) not in (parent, os.getpid())
    again.send_signal(signal.SIGKILL)
    assert end_of(again) == -signal.SIGKILL


_LAUNCH = """\
import sys, time
from pathlib import Path
from orbit_runner.sweep.warm_launcher import WarmLauncher
from tests.support.trials import ENDLESS, trial

folder = Path(sys.argv[1])
command = trial(folder / "log", "run", *ENDLESS, f"--model_dir={folder / 'run'}")
launcher = WarmLauncher(folder)
print(launcher.start(command).pid, flush=True)
time.sleep(10000)
"""


@pytest.mark.slow
def test_killed_launcher_ends_the_parent_and_its_trials(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", _LAUNCH, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=root
    )
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    parent = parent_of(pid)
    wait_for(lambda: steps(tmp_path / "run"))
    assert alive(parent)

    process.kill()
    process.communicate()

    wait_for(lambda: not alive(parent))
    wait_for(lambda: not alive(pid))


@pytest.mark.slow
def test_close_ends_the_parent(tmp_path: Path) -> None:
    launcher = WarmLauncher(tmp_path)
    parent = probed(launcher, tmp_path)["parent"]
    assert alive(parent)

    launcher.close()

    assert not alive(parent)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("site", "reason"),
    [
        (
            "import threading, time\n"
            "threading.Thread(target=time.sleep, args=(10000,), daemon=True).start()\n",
            "the imported modules started threads",
        ),
        (
            "import os, sys\nif 'warm_parent' in str(sys.orig_argv): os._exit(9)\n",
            "the process that forks trials ended with code 9",
        ),
    ],
    ids=["a thread runs", "the parent fails"],
)
def test_trials_start_cold_where_forking_is_not_safe(
    own_launcher: WarmLauncher,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    site: str,
    reason: str,
) -> None:
    (tmp_path / "sitecustomize.py").write_text(site)

    found = [probed(own_launcher, tmp_path, name) for name in ("a", "b")]

    assert [one["parent"] for one in found] == [os.getpid()] * 2
    (note,) = (text for text in caplog.messages if "each trial imports TensorFlow" in text)
    assert reason in note


@pytest.mark.slow
def test_trial_that_needs_another_environment_starts_again(
    launcher: WarmLauncher, tmp_path: Path
) -> None:
    run, log = tmp_path / "run", tmp_path / "log"
    needed = f"--runtime.xla_cache_dir={tmp_path / 'cache'}"
    arguments = ("run", *SHORT, needed, "--runtime.enable_xla=true", f"--model_dir={run}")
    process = launcher.start(trial(log, *arguments))
    pid = process.pid

    assert end_of(process) == 0, log.read_text()
    text = log.read_text()
    assert "restarting, because TF_XLA_FLAGS must be set before TensorFlow is imported" in text
    holder = json.loads((run / ".lock").read_text())
    assert holder["process"] == pid
    assert (tmp_path / "cache").is_dir()


@pytest.mark.slow
def test_a_hundred_forks_end(own_launcher: WarmLauncher, tmp_path: Path) -> None:
    (tmp_path / "probe_of_trial.py").write_text(_PROBE)
    running = []
    for number in range(100):
        log = tmp_path / f"{number}.log"
        command = trial(log, "list", "--import=probe_of_trial", PYTHONPATH=path_with(tmp_path))
        running.append((own_launcher.start(command), log))
        if number % 2:
            for process, written in running[-2:]:
                assert end_of(process) == 0, written.read_text()
    assert all('"sum": 125000.0' in log.read_text() for _, log in running)


@pytest.mark.slow
def test_ten_runs_of_different_seeds_equal_those_of_another_order(
    launcher: WarmLauncher, tmp_path: Path
) -> None:
    found: dict[int, set[str]] = {}
    for turn, seeds in enumerate(([1, 2, 3, 4, 5], [5, 4, 3, 2, 1])):
        for seed in seeds:
            run, log = tmp_path / f"{turn}-{seed}", tmp_path / f"{turn}-{seed}.log"
            flags = (*SHORT, f"--runtime.seed={seed}", f"--model_dir={run}")
            assert end_of(launcher.start(trial(log, "run", *flags))) == 0, log.read_text()
            found.setdefault(seed, set()).add(weights(run))
    assert [len(texts) for texts in found.values()] == [1] * 5
    assert len(set.union(*found.values())) == 5
