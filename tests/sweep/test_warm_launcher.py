"""Trials that a forkserver forks: equal weights, exit codes, signals, kills."""

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

from orbit_runner.sweep.trial_process import ColdLauncher, WarmLauncher
from tests.support.hold import NAME, hold_environ, is_held, release
from tests.support.launches import alive, wait_for
from tests.support.trials import ENDLESS, SHORT, end_of, parent_of, stop_forkserver, trial

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks on Linux only")
# Times and speeds.
_VARYING = ("time", "steps_per_second", "examples_per_second", "tflops_per_second", "mfu")


@pytest.fixture
def launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WarmLauncher]:
    """A launcher whose server starts with the first trial; its modules may be in `tmp_path`."""
    for name, value in hold_environ(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.syspath_prepend(tmp_path)  # which a server has from Python 3.12.8 on
    (tmp_path / "probe_of_trial.py").write_text(_PROBE)
    found = WarmLauncher(tmp_path)
    yield found
    found.close()
    stop_forkserver()


def records(run: Path) -> list[dict[str, Any]]:
    """The lines of `metrics.jsonl` without times and speeds."""
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [
        {k: v for k, v in line.items() if k not in _VARYING and not k.startswith("system/")}
        for line in lines
    ]


def texts(run: Path) -> list[str]:
    """The files that are equal in all runs, and the names of the others."""
    config = (run / "config.yaml").read_text().partition("\n")[2]  # without the directory
    names = ("checkpoints/fingerprints.jsonl", "operative_config.gin", "data.json")
    files = sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file())
    attempt = json.loads((run / "run.json").read_text())["attempts"][0]
    phases = sorted(attempt["seconds"])  # Their order depends on the speed.
    return [
        *((run / name).read_text() for name in names),
        *(config, str(records(run)), str([*attempt, *phases])),
        *(name for name in files if "tfevents" not in name),
    ]


@pytest.mark.slow
def test_forked_runs_equal_a_cold_one(launcher: WarmLauncher, tmp_path: Path) -> None:
    runs = [tmp_path / name for name in ("cold", "forked", "stopped")]
    for run, starter in zip(runs, (ColdLauncher(), launcher, launcher), strict=True):
        log = run.with_suffix(".log")
        extra = ["--trainer.steps_per_loop=1", f"--params_override=callbacks: [{NAME}]"]
        arguments = [*SHORT, *extra * (run.name == "stopped"), f"--model_dir={run}"]
        process = starter.start(trial(log, "run", *arguments))
        if run.name == "stopped":
            wait_for(lambda: is_held(tmp_path) or process.poll() is not None)  # noqa: B023
            # Slurm signals all processes. The server first: a trial does not outlive it.
            for pid in (parent_of(process.pid), process.pid):
                os.kill(pid, signal.SIGTERM)
            release(tmp_path)
            assert end_of(process) == 143, log.read_text()
            assert "SIGTERM: saved at step" in log.read_text()
            process.send_signal(signal.SIGTERM)  # Has no effect.
            process = starter.start(trial(log, "run", *arguments))
        assert end_of(process) == 0, log.read_text()

    assert texts(runs[1]) == texts(runs[0])
    last = [
        json.loads((run / "checkpoints/fingerprints.jsonl").read_text().splitlines()[-1])["weights"]
        for run in runs
    ]
    assert last == [last[0]] * 3


@pytest.mark.slow
def test_ends_and_output_of_commands(launcher: WarmLauncher, tmp_path: Path) -> None:
    log = tmp_path / "log"
    cases = {"--experiment=digits": (0, "train_steps"), "--experiment=none_such": (2, "none_such")}
    for argument, (code, said) in {**cases, "--help": (0, "usage")}.items():
        log.write_text("before\n")
        assert end_of(launcher.start(trial(log, "show", argument))) == code
        assert log.read_text().startswith("before\n")
        assert said in log.read_text()

    for number, codes in ((signal.SIGTERM, (-15, 143)), (signal.SIGKILL, (-9,))):
        process = launcher.start(trial(log, "run", *ENDLESS, f"--model_dir={tmp_path / 'run'}"))
        process.send_signal(number)  # right after the fork
        assert end_of(process) in codes
        assert not alive(process.pid)


_PROBE = """\
import json, multiprocessing, os, random, signal, sys
import numpy as np
import tensorflow as tf

print(json.dumps({
    "random": [random.random(), np.random.rand()],
    "gpu": os.environ.get("CUDA_VISIBLE_DEVICES"),
    "sum": float(tf.reduce_sum(tf.matmul(tf.ones([50, 50]), tf.ones([50, 50])))),
    "pid": os.getpid(),
    "parent": os.getppid(),
    "path": sys.path,
    "state": [
        sorted(os.sched_getaffinity(0)),
        os.getsid(0) == os.getpid(),
        os.readlink("/proc/self/fd/0"),
        [str(signal.getsignal(n)) for n in (signal.SIGCHLD, signal.SIGTERM)],
        [int(n) for n in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
        multiprocessing.get_start_method(allow_none=True),
        [sys.argv[1:], sys.orig_argv, os.getcwd()],
        [name for name in os.environ if name.startswith("ORBIT")],
    ],
}), flush=True)
"""


def probed(launcher: WarmLauncher | ColdLauncher, log: Path, **more: Any) -> dict[str, Any]:
    """Returns what a user's module finds in a trial."""
    command = trial(log, "list", "--import=probe_of_trial", **more)
    assert end_of(launcher.start(command)) == 0, log.read_text()
    (line,) = (line for line in log.read_text().splitlines() if line.startswith('{"random'))
    return json.loads(line)


@pytest.mark.slow
def test_trial_has_the_state_of_a_new_process(launcher: WarmLauncher, tmp_path: Path) -> None:
    cores = (max(os.sched_getaffinity(0)),)
    cold = probed(ColdLauncher(), tmp_path / "cold", cores=cores)
    first = probed(launcher, tmp_path / "a", cores=cores, CUDA_VISIBLE_DEVICES="")
    second = probed(launcher, tmp_path / "b", cores=cores, CUDA_VISIBLE_DEVICES="7")

    assert first["state"] == second["state"] == cold["state"]
    assert {*cold["path"]} <= {*first["path"]}  # More: that of pytest from Python 3.12.8 on.
    assert first["parent"] == second["parent"] != os.getpid()
    assert len({first["pid"], second["pid"], first["parent"]}) == 3
    assert [one["gpu"] for one in (first, second)] == ["", "7"]
    assert not {*first["random"]} & {*second["random"]}
    assert first["sum"] == 50.0**3


@pytest.mark.slow
def test_different_trials_start_cold(
    launcher: WarmLauncher, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    module = tmp_path / "sitecustomize.py"
    module.write_text("")
    assert probed(launcher, tmp_path / "a")["parent"] != os.getpid()
    for number, more in enumerate(({"MINE": "1"}, {"cores": (0,)}, {})):
        if not more:
            module.write_text("changed = True\n")
        assert probed(launcher, tmp_path / str(number), **more)["parent"] == os.getpid()

    (note,) = (text for text in caplog.messages if "each trial imports TensorFlow" in text)
    assert "a trial has other environment variables or another number of cores" in note


@pytest.mark.slow
@pytest.mark.parametrize(
    ("site", "reason"),
    [
        (
            "import threading, time\n"
            "threading.Thread(target=time.sleep, args=(10000,), daemon=True).start()\n",
            "the imported modules started threads: python",
        ),
        ("import tensorflow; tensorflow.constant(1.0)\n", "the imported modules started threads"),
        ("import os, sys\nif 'forkserver' in str(sys.orig_argv): os._exit(9)\n", "failed (unex"),
        (
            "import sys\nif 'forkserver' in str(sys.orig_argv): sys.modules['rich.text'] = None\n",
            "ModuleNotFoundError: import of rich.text halted",
        ),
    ],
    ids=["a thread runs", "TensorFlow has started", "the server fails", "an import fails"],
)
def test_trials_start_cold_where_forking_is_not_safe(
    launcher: WarmLauncher,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    site: str,
    reason: str,
) -> None:
    (tmp_path / "sitecustomize.py").write_text(site)

    assert [probed(launcher, tmp_path / name)["parent"] for name in "ab"] == [os.getpid()] * 2
    (note,) = (text for text in caplog.messages if "each trial imports TensorFlow" in text)
    assert reason in note
    assert str(tmp_path / "logs" / "forkserver.log") in note or "threads" in note


@pytest.mark.slow
def test_killed_server_ends_its_trials_and_is_replaced(
    launcher: WarmLauncher, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    command = trial(tmp_path / "log", "run", *ENDLESS, f"--model_dir={run}")
    process = launcher.start(command)
    wait_for(lambda: (run / "metrics.jsonl").exists() or process.poll() is not None)
    server = parent_of(process.pid)

    os.kill(server, signal.SIGKILL)

    assert end_of(process) == -signal.SIGKILL
    wait_for(lambda: not alive(process.pid))
    again = launcher.start(command)
    assert parent_of(again.pid) not in (server, os.getpid())
    launcher.close()
    assert end_of(again) == -signal.SIGKILL


@pytest.mark.slow
def test_killed_launcher_ends_the_server_and_its_trials(tmp_path: Path) -> None:
    # Without a guard: the server and the trials must not run it again.
    script = tmp_path / "script.py"
    script.write_text(_LAUNCH)
    root = Path(__file__).parents[2]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (root, root / "src")))}
    process = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path)], stdout=subprocess.PIPE, text=True, env=environ
    )
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    server = parent_of(pid)
    wait_for((tmp_path / "run" / "metrics.jsonl").exists)
    assert alive(server)

    process.kill()
    process.communicate()

    wait_for(lambda: not alive(server))
    wait_for(lambda: not alive(pid))


_LAUNCH = """\
import sys, time
from pathlib import Path
from orbit_runner.sweep.trial_process import WarmLauncher
from tests.support.trials import ENDLESS, trial

folder = Path(sys.argv[1])
command = trial(folder / "log", "run", *ENDLESS, f"--model_dir={folder / 'run'}")
launcher = WarmLauncher(folder)
print(launcher.start(command).pid, flush=True)
time.sleep(10000)
"""


@pytest.mark.slow
def test_trial_that_needs_another_environment_starts_again(
    launcher: WarmLauncher, tmp_path: Path
) -> None:
    run, log = tmp_path / "run", tmp_path / "log"
    needed = f"--runtime.xla_cache_dir={tmp_path / 'cache'}"
    arguments = ("run", *SHORT, needed, "--runtime.enable_xla=true", f"--model_dir={run}")
    process = launcher.start(trial(log, *arguments))

    assert end_of(process) == 0, log.read_text()
    text = log.read_text()
    assert "restarting, because TF_XLA_FLAGS must be set before TensorFlow is imported" in text
    assert json.loads((run / ".lock").read_text())["process"] == process.pid
    assert (tmp_path / "cache").is_dir()


@pytest.mark.slow
def test_a_hundred_forks_end(launcher: WarmLauncher, tmp_path: Path) -> None:
    for number in range(0, 100, 2):
        logs = [tmp_path / f"{number + more}.log" for more in range(2)]
        commands = [trial(log, "list", "--import=probe_of_trial") for log in logs]
        for process, log in zip([*map(launcher.start, commands)], logs, strict=True):
            assert end_of(process) == 0, log.read_text()
            assert '"sum": 125000.0' in log.read_text()
