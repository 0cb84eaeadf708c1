"""Divides the trials of a sweep among processes, and cores and GPUs among the trials.

A lock is an advisory `flock` on a file. The kernel releases it when the process ends, even after
SIGKILL, so no clock is involved. A child process does not inherit it.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from orbit_runner.errors import RunnerError, format_count
from orbit_runner.utils.signals import SignalGuard

_PAUSE_SECONDS = 0.05


class Claim:
    """A lock that this process holds until `release` or the end of a `with` block."""

    def __init__(self, file: int) -> None:
        self._file = file

    def release(self) -> None:
        """Releases the lock."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def __enter__(self) -> Claim:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


class Claims:
    """The locks in a directory, by name."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def try_acquire(self, name: str) -> Claim | None:
        """Acquires a lock, or returns None if another process holds it."""
        path = self._directory / f"{name}.lock"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # The file is never removed: two processes could lock two files of the same name.
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise RunnerError(
                f"cannot write {path}: {error.strerror}", path="--model_dir", code="not-writable"
            ) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return None
        except OSError as error:
            os.close(file)
            raise RunnerError(
                f"{path} cannot be locked: {error.strerror}\n"
                "use a file system that supports locks; they divide the trials among processes",
                path="--model_dir",
                code="not-writable",
            ) from error
        return Claim(file)

    def acquire(self, name: str, signals: SignalGuard) -> Claim | None:
        """Acquires a lock, and waits while another process holds it.

        Returns None if a signal asked this process to exit before it acquired the lock.
        """
        while signals.received is None:
            claim = self.try_acquire(name)
            if claim is not None:
                return claim
            time.sleep(_PAUSE_SECONDS)
        return None


_VISIBLE = "CUDA_VISIBLE_DEVICES"
_DRIVER = Path("/proc/driver/nvidia/gpus")


def divide_cores(jobs: int) -> list[tuple[int, ...]]:
    """Returns the cores of each trial that may train at the same time here, empty for all."""
    if jobs == 1 or not hasattr(os, "sched_getaffinity"):
        return [()] * jobs
    cores = sorted(os.sched_getaffinity(0))
    size = len(cores) // jobs
    if size == 0:
        return [(cores[number % len(cores)],) for number in range(jobs)]
    return [tuple(cores[n * size : (n + 1) * size]) for n in range(jobs)]


def visible_gpus(environ: Mapping[str, str]) -> list[str]:
    """Returns the GPUs that this process may use, as `CUDA_VISIBLE_DEVICES` names them."""
    names = environ.get(_VISIBLE)
    if names is not None:
        return [name.strip() for name in names.split(",") if name.strip() not in ("", "-1")]
    try:
        return [str(index) for index, _ in enumerate(sorted(_DRIVER.iterdir()))]
    except OSError:
        return []


class Devices:
    """Assigns GPUs, each to at most one trial on this machine.

    Slurm gives each job other GPUs, but it may number those of each job from 0.

    Raises RunnerError if there are fewer GPUs than a trial needs.
    """

    def __init__(self, per_job: int, claims: Claims, environ: Mapping[str, str]) -> None:
        self._per_job = per_job
        self._claims = claims
        self._gpus = visible_gpus(environ)
        job = environ.get("SLURM_JOB_ID", "") if _VISIBLE in environ else ""
        self._place = "-".join([socket.gethostname(), *([f"job-{_file_name(job)}"] if job else [])])
        if per_job > len(self._gpus):
            raise RunnerError(
                f"got {per_job}, but this machine has {format_count(len(self._gpus), 'GPU')}"
                f"\nuse fewer, or set {_VISIBLE}",
                path="--devices_per_job",
                code="missing-device",
            )

    def try_acquire(self) -> tuple[dict[str, str], list[Claim]] | None:
        """Returns the environment of a trial and its claims; None if too few GPUs are free."""
        if not self._per_job:
            return {}, []
        acquired = list[tuple[str, Claim]]()
        for name in self._gpus:
            claim = self._claims.try_acquire(f"gpu-{self._place}-{_file_name(name)}")
            if claim is not None:
                acquired.append((name, claim))
            if len(acquired) == self._per_job:
                return {_VISIBLE: ",".join(name for name, _ in acquired)}, [c for _, c in acquired]
        release_all([claim for _, claim in acquired])
        return None


def release_all(claims: Sequence[Claim]) -> None:
    """Releases several locks."""
    for claim in claims:
        claim.release()


def _file_name(name: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in name)
