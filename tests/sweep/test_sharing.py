"""Locks, cores and GPUs of the trials that train at the same time."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from orbit_runner.sweep.directory import SweepDirectory
from orbit_runner.sweep.sharing import Claims, Devices, divide_cores, release_all, visible_gpus
from orbit_runner.sweep.worker import Worker
from orbit_runner.utils.signals import SignalGuard
from tests.support.problems import raises
from tests.sweep.sweep_files import TEXT, sweep_of


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        (1, [()]),
        (2, [(3, 4), (5, 6)]),
        (3, [(3,), (4,), (5,)]),
        (5, [(3,), (4,), (5,), (6,), (3,)]),
    ],
)
def test_cores_are_divided(jobs, expected, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {6, 3, 4, 5})

    assert divide_cores(jobs) == expected


@pytest.mark.parametrize(
    ("said", "expected"), [("", []), ("-1", []), ("2, 5", ["2", "5"]), ("GPU-a", ["GPU-a"])]
)
def test_gpus_are_those_of_the_environment(said, expected):
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": said}) == expected


def test_no_two_trials_get_the_same_gpu(tmp_path):
    environ = {"CUDA_VISIBLE_DEVICES": "0,1,2"}
    devices = [Devices(1, Claims(tmp_path), environ) for _ in range(2)]
    first, second, third = (
        devices[0].try_acquire(),
        devices[1].try_acquire(),
        devices[0].try_acquire(),
    )

    assert [
        acquired[0]["CUDA_VISIBLE_DEVICES"] for acquired in (first, second, third) if acquired
    ] == [
        "0",
        "1",
        "2",
    ]
    assert devices[1].try_acquire() is None
    release_all(second[1])
    assert Devices(2, Claims(tmp_path), environ).try_acquire() is None
    reacquired = devices[0].try_acquire()
    assert reacquired[0] == {"CUDA_VISIBLE_DEVICES": "1"}


def test_jobs_of_slurm_on_one_machine_have_gpus_of_their_own(tmp_path):
    # Slurm may number the GPUs of each job from 0.
    jobs = [{"CUDA_VISIBLE_DEVICES": "0", "SLURM_JOB_ID": number} for number in ("7", "8")]
    devices = [Devices(1, Claims(tmp_path), environ) for environ in (*jobs, jobs[0])]

    first, second, third = (device.try_acquire() for device in devices)

    assert first is not None
    assert second is not None
    assert third is None  # A process of the same job.


def test_too_few_gpus_are_reported(tmp_path):
    with raises("missing-device", "--devices_per_job"):
        Devices(2, Claims(tmp_path), {"CUDA_VISIBLE_DEVICES": "0"})


_HOLDER = """\
import sys, time
from pathlib import Path
from orbit_runner.sweep.sharing import Claims
claim = Claims(Path(sys.argv[1])).try_acquire("0007")
print("taken", flush=True)
time.sleep(60)
"""


def test_lock_is_held_by_one_process_until_it_is_killed(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(tmp_path)], stdout=subprocess.PIPE
    ) as holder:
        holder.stdout.readline()
        assert Claims(tmp_path).try_acquire("0007") is None
        assert Claims(tmp_path).try_acquire("0008") is not None
        holder.kill()
    assert Claims(tmp_path).try_acquire("0007") is not None


def test_child_process_does_not_keep_a_lock(tmp_path):
    claim = Claims(tmp_path).acquire("a", SignalGuard())
    assert claim is not None
    with claim:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        assert Claims(tmp_path).try_acquire("a") is not None
    finally:
        child.kill()
        child.wait()


def test_directory_that_cannot_be_made_is_reported(tmp_path):
    (tmp_path / "claims").write_text("")

    with raises("not-writable", "--model_dir"):
        Claims(tmp_path / "claims").try_acquire("a")


class _Failing:
    """Stands for a process whose trial fails when it is asked for the second time."""

    trials = 1
    running = 0
    most = 0

    def __init__(self, command: object) -> None:
        self._asked = 0
        _Failing.running += 1
        _Failing.most = max(_Failing.most, _Failing.running)

    def can_train(self, command: object) -> bool:
        return False

    def poll(self) -> int | None:
        self._asked += 1
        if self._asked == 1:
            return None
        _Failing.running -= 1
        return 1

    def kill(self) -> None: ...


@pytest.mark.parametrize(("gpus", "most"), [("0", 1), ("0,1", 2)])
def test_trial_waits_for_a_gpu(gpus, most, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpus)
    monkeypatch.setattr("orbit_runner.sweep.worker.TrialProcess", _Failing)
    monkeypatch.setattr(_Failing, "most", 0)
    sweep = sweep_of(TEXT.replace("trials: 8", "trials: 4"))
    worker = Worker(
        lambda: sweep,
        SweepDirectory(tmp_path),
        jobs=2,
        devices_per_job=1,
        signals=SignalGuard(),
        show=lambda results: None,
    )

    results = worker.run()

    assert [trial.status for trial in results.trials] == ["failed"] * 4
    assert _Failing.most == most
