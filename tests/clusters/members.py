"""Clusters of real processes on loopback, for tests."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.support import warm_runner

EXPERIMENT = (
    "--experiment=digits_mlp",
    "--task.model.dropout_rate=0",
    "--task.train_data.global_batch_size=48",
    "--task.validation_data.global_batch_size=48",
    "--trainer.summary_interval=1",
)
MULTI_WORKER = "--runtime.distribution_strategy=multi_worker_mirrored"
ONE_DEVICE = "--runtime.distribution_strategy=one_device"
_ROOT = Path(__file__).parents[2]


def mirrored(replicas: int) -> tuple[str, str]:
    """Returns the flags for replicas on parts of the CPU."""
    return (
        "--runtime.distribution_strategy=mirrored",
        f"--runtime.num_virtual_devices={replicas}",
    )


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("", 0))) for _ in range(count)]
        return [opened.getsockname()[1] for opened in sockets]


def addresses(**counts: int) -> dict[str, list[str]]:
    """Returns free addresses for each role."""
    ports = iter(free_ports(sum(counts.values())))
    return {role: [f"127.0.0.1:{next(ports)}" for _ in range(n)] for role, n in counts.items()}


class Member:
    """One process of a cluster, its output in a file. It can import `tests`."""

    def __init__(
        self, name: str, flags: Sequence[str], log: Path, tf_config: dict[str, Any] | None
    ) -> None:
        self.name, self._log = name, log
        path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": path}
        if tf_config is not None:
            environ["TF_CONFIG"] = json.dumps(tf_config)
        with log.open("wb") as out:
            self.process = warm_runner.start(
                "run", *flags, cwd=log.parent, env=environ, stdout=out, stderr=subprocess.STDOUT
            )

    @property
    def text(self) -> str:
        return self._log.read_text()

    def wait(self, timeout: float = 600.0) -> int:
        return self.process.wait(timeout)

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def until(self, text: str, timeout: float = 600.0) -> None:
        """Waits until the member has written something."""
        end = time.monotonic() + timeout
        while text not in self.text:
            assert self.process.poll() is None, self.text
            assert time.monotonic() < end, self.text
            time.sleep(0.05)


@contextlib.contextmanager
def cluster(
    folder: Path, *flags: str, own: dict[str, Sequence[str]] | None = None, **counts: int
) -> Iterator[dict[str, Member]]:
    """Starts a cluster, and kills the members that are left.

    Args:
        folder: Where logs go; the run itself goes to `run` in it.
        *flags: Of all members.
        own: Flags of single members, by name.
        **counts: Role to its number of members.
    """
    jobs = addresses(**counts)
    folder.mkdir(parents=True, exist_ok=True)
    members = {}
    try:
        for role, index in [(role, i) for role, n in counts.items() for i in range(n)]:
            name = f"{role}{index}"
            task = {"cluster": jobs, "task": {"type": role, "index": index}}
            args = [f"--model_dir={folder / 'run'}", *flags, *(own or {}).get(name, ())]
            members[name] = Member(name, args, folder / f"{name}.log", task)
        yield members
    finally:
        for member in members.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(member.process.pid, signal.SIGKILL)
            member.process.wait()


def alone(folder: Path, *flags: str) -> Member:
    """Runs one process to its end."""
    folder.mkdir(parents=True, exist_ok=True)
    member = Member("alone", [f"--model_dir={folder / 'run'}", *flags], folder / "alone.log", None)
    assert member.wait() == 0, member.text
    return member


def records(folder: Path, split: str) -> list[dict[str, Any]]:
    lines = (folder / "run" / "metrics.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["split"] == split]


def content(folder: Path) -> dict[str, Any]:
    """Returns step, and fingerprints of weights and state, of the newest checkpoint."""
    lines = (folder / "run" / "checkpoints" / "fingerprints.jsonl").read_text().splitlines()
    return dict(json.loads(lines[-1]))


def finish(members: dict[str, Member], timeout: float = 600.0) -> dict[str, int]:
    return {name: member.wait(timeout) for name, member in members.items()}


def run_workers(
    folder: Path,
    *flags: str,
    own: dict[str, Sequence[str]] | None = None,
    count: int = 2,
    code: int = 0,
) -> dict[str, str]:
    """Runs workers to their end, which must have an exit code, and returns what they wrote."""
    with cluster(folder, *flags, MULTI_WORKER, own=own, worker=count) as members:
        assert finish(members) == dict.fromkeys(members, code), members["worker0"].text
    return {name: member.text for name, member in members.items()}
