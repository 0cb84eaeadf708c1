"""The data services of a cluster, each a process with one worker."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from orbit_runner.distribute.cluster.addresses import split_address
from orbit_runner.distribute.cluster.liveness import Sign, sign_of_life
from orbit_runner.errors import RunnerError
from orbit_runner.launch.process import Spec
from orbit_runner.launch.roles import SERVICE

# Returns the command line of a server for flags of `runner server`.
Server = Callable[[Sequence[str]], Sequence[str]]

_START_SECONDS, _PROBE_SECONDS = 120.0, 0.5


def runner_server(flags: Sequence[str]) -> list[str]:
    """Returns the command line of `runner server` with the given flags."""
    return [sys.executable, "-m", "orbit_runner", "server", *flags]


def service_specs(
    addresses: Sequence[str], logs: Path, server: Server = runner_server
) -> list[Spec]:
    """Returns how to start the data services at the given addresses."""
    return [_spec(number, address, logs, server) for number, address in enumerate(addresses)]


def _spec(number: int, address: str, logs: Path, server: Server) -> Spec:
    host, port = split_address(address)
    # Services do not need GPUs, and would take GPU memory from the members.
    environ = {**os.environ, "PYTHONUNBUFFERED": "1", "CUDA_VISIBLE_DEVICES": ""}
    return Spec(
        name=f"data {number}",
        part=SERVICE,
        command=tuple(server(["--role=data", f"--port={port}", f"--host={host}"])),
        environ=environ,
        log=logs / f"data-{number}.log",
    )


@dataclasses.dataclass
class Opening:
    """Waits until the services respond, because members connect to them when they start."""

    waiting: tuple[str, ...]  # addresses that have not responded yet
    seconds: float = _START_SECONDS  # timeout

    def __post_init__(self) -> None:
        self._begun = time.monotonic()

    def done(self) -> bool:
        """Returns whether all services have responded; raises an error after the timeout."""
        while self.waiting:
            if sign_of_life(self.waiting[0], _PROBE_SECONDS) is not Sign.ALIVE:
                break
            self.waiting = self.waiting[1:]
        if self.waiting and time.monotonic() - self._begun > self.seconds:
            raise RunnerError(
                f"data service: {', '.join(self.waiting)} did not respond within "
                f"{self.seconds:.0f} s"
            )
        return not self.waiting
