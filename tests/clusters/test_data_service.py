"""Batches made by data services in other processes, some of which are lost during a run."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters.members import EXPERIMENT, MULTI_WORKER, Member, alone, content, free_ports
from tests.support.launches import wait_for

RUNNER = [sys.executable, "-m", "orbit_runner"]
RUN = (
    *EXPERIMENT, "--train_steps=400", "--trainer.checkpoint_interval=50",
    "--trainer.validation_interval=100", "--trainer.summary_interval=50",
    "--task.train_data.augment=crop",
)  # fmt: skip
MIRRORED = ("--runtime.distribution_strategy=mirrored", "--runtime.num_virtual_devices=2")
QUICK, PATIENT = "--runtime.heartbeat_timeout=2", "--runtime.heartbeat_timeout=5"


class Services:
    """Data servers, and the flag that names them."""

    def __init__(self, count: int) -> None:
        self.ports = free_ports(count)
        self.processes = [
            subprocess.Popen(
                [*RUNNER, "server", "--role=data", f"--port={port}"],
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            )
            for port in self.ports
        ]  # fmt: skip
        for process in self.processes:
            assert process.stdout is not None
            assert "serves at" in process.stdout.readline()

    @property
    def flag(self) -> str:
        addresses = ",".join(f"grpc://127.0.0.1:{port}" for port in self.ports)
        return f"--runtime.tf_data_service={addresses}"


@contextlib.contextmanager
def services(count: int) -> Iterator[Services]:
    """Starts data servers, and kills them at the end."""
    started = Services(count)
    try:
        yield started
    finally:
        for process in started.processes:
            process.kill()
            process.communicate()


def _member(folder: Path, *flags: str) -> Member:
    folder.mkdir(parents=True, exist_ok=True)
    return Member("one", [f"--model_dir={folder / 'run'}", *flags], folder / "one.log", None)


@pytest.mark.matrix
@pytest.mark.parametrize("strategy", [(), MIRRORED], ids=["one_device", "mirrored"])
def test_killed_data_service_ends_the_run_and_the_run_resumes(
    tmp_path: Path, strategy: tuple[str, ...]
) -> None:
    folder = tmp_path / "served"
    with services(2) as started:
        member = _member(folder, *RUN, *strategy, QUICK, started.flag)
        member.until("evaluation at step 100")
        started.processes[1].kill()
        assert member.wait(600) == 138
    service = f"the data service grpc://127.0.0.1:{started.ports[1]}"
    assert f"runner: {service} was lost: nothing is listening" in member.text.splitlines()
    assert "Traceback" not in member.text
    with services(1) as started:
        again = _member(folder, *RUN, *strategy, QUICK, started.flag)
        assert again.wait() == 0, again.text
    assert "restored step" in again.text

    alone(tmp_path / "alone", *RUN, *strategy)
    assert content(folder) == content(tmp_path / "alone")


@pytest.mark.matrix
def test_data_service_exits_promptly_on_sigterm(tmp_path: Path) -> None:
    with services(1) as started:
        member = _member(tmp_path, *RUN, QUICK, started.flag, "--train_steps=1000000")
        member.until("evaluation at step 300")
        time.sleep(20)  # It may wait for as long as pipelines have run.
        started.processes[0].terminate()
        assert started.processes[0].wait(15) == 143
        assert member.wait(600) == 138


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("number", "said"),
    [(signal.SIGKILL, "nothing is listening"), (signal.SIGSTOP, "no response")],
)
def test_lost_data_service_ends_a_process_waiting_for_a_checkpoint(
    tmp_path: Path, number: signal.Signals, said: str
) -> None:
    with services(1) as started:
        member = _member(tmp_path, *RUN, "--mode=continuous_eval", QUICK, started.flag)
        member.until("waiting for a checkpoint")
        time.sleep(1.5)
        assert member.process.poll() is None
        started.processes[0].send_signal(number)
        assert member.wait(600) == 138
    last = f"runner: the data service grpc://127.0.0.1:{started.ports[0]} was lost: {said}"
    assert last in member.text.splitlines()


def _kill_service(launcher: int, checkpoints: Path) -> None:
    wait_for(lambda: len([*checkpoints.glob("*.index")]) > 1)
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    found = [c for c in children if "--role=data" in Path(f"/proc/{c}/cmdline").read_text()]
    os.kill(int(found[1]), signal.SIGKILL)


@pytest.mark.slow
def test_workers_reach_the_same_weights_after_losing_a_data_service(tmp_path: Path) -> None:
    flags = ("--workers=2", "--data-workers=2", "--", *RUN, MULTI_WORKER, PATIENT)
    launcher = subprocess.Popen(
        [*RUNNER, "launch", *flags, f"--model_dir={tmp_path / 'run'}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        _kill_service(launcher.pid, tmp_path / "run" / "checkpoints")
        _, err = launcher.communicate(timeout=600)
    finally:
        launcher.terminate()
    assert launcher.returncode == 0, err
    noted = "data 1 was killed by SIGKILL; restarting all members from the last checkpoint (1 of 3)"
    assert noted in err
    assert "was lost: nothing is listening" in err
    assert "absl::InitializeLog" not in err

    alone(tmp_path / "mirrored", *RUN, *MIRRORED)
    assert content(tmp_path) == content(tmp_path / "mirrored")

    # The services named in config.yaml are no longer running.
    again = [*RUNNER, "reproduce", str(tmp_path / "run"), "--last=50"]
    assert subprocess.run(again, capture_output=True, timeout=600, check=False).returncode == 0
