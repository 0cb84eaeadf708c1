"""Workers that are killed, suspended, slowed or cut off, again and again: equal weights."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

_MOST_FAULTS, _STEPS_PER_FAULT, _STEPS_OF_SAMPLE = 20, 2500, 2000
_PATIENCE_SECONDS = 300.0
_RUN = [
    *("--experiment=digits_mlp", "--mode=train", "--task.model.dropout_rate=0.3"),
    "--runtime.distribution_strategy=multi_worker_mirrored",
    *("--runtime.heartbeat_timeout=5", "--trainer.checkpoint_interval=100"),
    *("--trainer.steps_per_loop=50", "--trainer.report_interval=0", "--json"),
]
# A network of its own, so that it can be cut without cutting that of the tests.
_HAS_NAMESPACES = os.getuid() == 0 and bool(shutil.which("ip") and shutil.which("unshare"))
_IN_NAMESPACE = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]


class _Launch:
    """Two workers in a network namespace, and the launcher that supervises them."""

    def __init__(self, directory: Path, steps: int) -> None:
        self._directory, self._errors = directory, directory.with_suffix(".log")
        command = [sys.executable, "-m", "orbit_runner", "launch", "--workers=2"]
        command += ["--restarts=1000", "--", *_RUN]
        command += [f"--train_steps={steps}", f"--model_dir={directory}"]
        with self._errors.open("w") as to:
            self._process = subprocess.Popen(
                [*(_IN_NAMESPACE if _HAS_NAMESPACES else []), *command],
                stdout=subprocess.PIPE,
                stderr=to,
                text=True,
            )

    def fingerprint(self) -> str:
        """Waits for the end, and returns the fingerprint of the weights."""
        out, _ = self._process.communicate(timeout=_PATIENCE_SECONDS)
        assert self._process.returncode == 0, self.errors
        return json.loads(out)["fingerprint"]

    def end(self) -> None:
        """Kills the launcher, if it runs. The kernel then kills the workers."""
        self._process.kill()
        self._process.wait()

    @property
    def errors(self) -> str:
        """What the launcher and the workers have printed."""
        return self._errors.read_text()

    def wait_for_checkpoint(self, after: int) -> int:
        """Waits for a checkpoint after a step, and returns its step."""
        end = time.monotonic() + _PATIENCE_SECONDS
        while (step := self._newest()) <= after:
            assert self._process.poll() is None, f"the run ended: train longer\n{self.errors}"
            assert time.monotonic() < end, f"no checkpoint after step {after}\n{self.errors}"
            time.sleep(0.02)
        return step

    def _newest(self) -> int:
        matches = [
            re.fullmatch(r"ckpt-(\d+)\.index", path.name)
            for path in (self._directory / "checkpoints").glob("*.index")
        ]
        return max((int(match[1]) for match in matches if match), default=-1)

    def worker(self, index: int) -> int:
        """Returns the process ID of a worker."""
        launcher = self._process.pid
        children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
        for child in map(int, children):
            if f'"worker", "index": {index}}}' in Path(f"/proc/{child}/environ").read_text():
                return child
        raise AssertionError(f"worker {index} does not run\n{self.errors}")

    def set_network(self, state: str) -> None:
        """Turns the network of the workers `up` or `down`."""
        name = ["nsenter", f"--target={self._process.pid}", "--net"]
        subprocess.run([*name, "ip", "link", "set", "lo", state], check=True)


def _kill(launch: _Launch, index: int) -> None:
    os.kill(launch.worker(index), signal.SIGKILL)


def _suspend(launch: _Launch, index: int) -> None:
    os.kill(launch.worker(index), signal.SIGSTOP)


def _slow(launch: _Launch, index: int) -> None:
    worker = launch.worker(index)
    for _ in range(20):
        os.kill(worker, signal.SIGSTOP)
        time.sleep(0.2)
        os.kill(worker, signal.SIGCONT)
        time.sleep(0.05)


def _cut_off(launch: _Launch, index: int) -> None:
    launch.set_network("down")
    time.sleep(10)
    launch.set_network("up")


@pytest.fixture(scope="module")
def faults(points):
    """The number of faults in each run."""
    return min(points, _MOST_FAULTS) or 1


@pytest.fixture(scope="module")
def steps(points, faults):
    """The number of training steps of each run."""
    return _STEPS_PER_FAULT * (faults + 1) if points else _STEPS_OF_SAMPLE


@pytest.fixture(scope="module")
def fingerprint_without_faults(steps, tmp_path_factory):
    launch = _Launch(tmp_path_factory.mktemp("whole") / "run", steps)
    try:
        return launch.fingerprint()
    finally:
        launch.end()


_NEEDS_NAMESPACES = pytest.mark.skipif(not _HAS_NAMESPACES, reason="needs network namespaces")
_FAULTS = [_kill, _suspend, _slow, pytest.param(_cut_off, marks=_NEEDS_NAMESPACES)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Kills a worker, or does all that there is if faults are asked for."""
    points = metafunc.config.getoption("--points", default="")
    metafunc.parametrize("fault", _FAULTS if points else [_kill])


@pytest.mark.promise("commands", "`runner launch` restarts a cluster")
@pytest.mark.promise(
    "faults",
    "two workers, of which one is killed, suspended, slowed or cut off from the network, go on by "
    "themselves with the same weights",
)
def test_run_goes_on_by_itself_with_the_same_weights(
    fault, faults, steps, fingerprint_without_faults, record, tmp_path
):
    rng, seconds = random.Random(fault.__name__), list[float]()
    launch = _Launch(tmp_path / "run", steps)
    try:
        step = launch.wait_for_checkpoint(after=0)
        for _ in range(faults):
            time.sleep(rng.uniform(0.0, 1.0))
            start = time.monotonic()
            fault(launch, rng.randrange(2))
            step = launch.wait_for_checkpoint(after=step)
            step = launch.wait_for_checkpoint(after=step)  # The first may be from before the fault.
            seconds.append(time.monotonic() - start)
        assert launch.fingerprint() == fingerprint_without_faults
    finally:
        launch.end()
    restarts = launch.errors.count("restarting all members")
    assert bool(restarts) or fault in (_slow, _cut_off), launch.errors
    record(
        f"one of two workers, {fault.__name__.strip('_').replace('_', ' ')}",
        points=faults,
        restarts=restarts,
        median_seconds=round(statistics.median(seconds), 1),
        most_seconds=round(max(seconds), 1),
    )
