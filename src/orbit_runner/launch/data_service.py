"""The data services of a cluster, each a process with one worker."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from orbit_runner.distribute.cluster.addresses import split_address
from orbit_runner.distribute.cluster.liveness import Liveness, check_liveness
from orbit_runner.errors import RunnerError
from orbit_runner.launch.process import Spec
from orbit_runner.launch.roles import SERVICE

# Returns the command line of a server for flags of `runner server`.
ServerCommand = Callable[[Sequence[str]], Sequence[str]]

_START_SECONDS, _PROBE_SECONDS = 120.0, 0.5


def server_command(flags: Sequence[str]) -> list[str]:
    """Returns the command line of `runner server` with the given flags."""
    return [sys.executable, "-m", "orbit_runner", "server", *flags]


def service_specs(
    addresses: Sequence[str], logs: Path, server: ServerCommand = server_command
) -> list[Spec]:
    """Returns how to start the data services at the given addresses."""
    return [_build_spec(number, address, logs, server) for number, address in enumerate(addresses)]


def _build_spec(number: int, address: str, logs: Path, server: ServerCommand) -> Spec:
    host, port = split_address(address)
    # Services do not need GPUs, and would take GPU memory from the members.
    environ = {**os.environ, "PYTHONUNBUFFERED": "1", "CUDA_VISIBLE_DEVICES": ""}
    return Spec(
        name=f"data {number}",
        traits=SERVICE,
        command=tuple(server(["--role=data", f"--port={port}", f"--host={host}"])),
        environ=environ,
        log=logs / f"data-{number}.log",
    )


@dataclasses.dataclass
class ServiceStartup:
    """Waits until the services respond, because members connect to them when they start."""

    waiting: tuple[str, ...]  # addresses that have not responded yet
    seconds: float = _START_SECONDS  # timeout

    def __post_init__(self) -> None:
        self._start_time = time.monotonic()

    def is_complete(self) -> bool:
        """Returns whether all services have responded; raises an error after the timeout."""
        while self.waiting:
            if check_liveness(self.waiting[0], _PROBE_SECONDS) is not Liveness.ALIVE:
                break
            self.waiting = self.waiting[1:]
        if self.waiting and time.monotonic() - self._start_time > self.seconds:
            raise RunnerError(
                f"data service: {', '.join(self.waiting)} did not respond within "
                f"{self.seconds:.0f} s"
            )
        return not self.waiting
