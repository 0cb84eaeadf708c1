"""A tf.data service beside the cluster: a dispatcher on machine 0, and workers on each."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from orbit_runner.errors import RunnerError
from orbit_runner.runtime.cluster.addresses import split_address
from orbit_runner.runtime.launch.crew import named, until
from orbit_runner.runtime.launch.job import Job
from orbit_runner.runtime.launch.parts import HELPER
from orbit_runner.runtime.launch.ports import free_ports
from orbit_runner.runtime.launch.process import Process, Spec

# Makes the command line of a server from flags of `runner server`.
Server = Callable[[Sequence[str]], Sequence[str]]


def runner_server(flags: Sequence[str]) -> list[str]:
    """Returns the command line of `runner server`.

    Args:
        flags: Its flags.
    """
    return [sys.executable, "-m", "orbit_runner", "server", *flags]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataService:
    """What of the service runs on this machine.

    Attributes:
        dispatcher: `host:port` of the dispatcher, as all machines reach it.
        dispatches: Whether it runs here.
        workers: How many workers run here.
        host: What others reach this machine by.
        journal: A folder in which the dispatcher keeps what it needs when it is started again.
        logs: The folder of the logs.
        server: Makes command lines.
    """

    dispatcher: str
    dispatches: bool
    workers: int
    host: str
    journal: Path
    logs: Path
    server: Server = runner_server

    def start(self, job: Job, seconds: float) -> None:
        """Starts it, and waits until every part answers.

        Args:
            job: Whose crew it joins.
            seconds: How long to wait.

        Raises:
            RunnerError: A part of it ended, or does not answer.
        """
        started = [job.crew.start(spec) for spec in self._specs()]
        job.screen.note(f"waiting up to {seconds:.0f} s for {named(started)} to answer")
        answered = until(lambda: job.asked() or _none_silent(started), seconds)
        ended = [ending for process in started if (ending := process.ending())]
        if ended:
            raise RunnerError(f"tf.data service: {ended[0]} (log: {started[0].spec.log.parent})")
        if not answered:
            silent = named(process for process in started if not process.spoke.is_set())
            raise RunnerError(f"tf.data service: {silent} did not answer within {seconds:.0f} s")

    def _specs(self) -> list[Spec]:
        specs = []
        if self.dispatches:
            port = split_address(self.dispatcher)[1]
            flags = ["--role=data_dispatcher", f"--port={port}", f"--work_dir={self.journal}"]
            specs.append(self._spec("data dispatcher", flags))
        for number, port in enumerate(free_ports(self.workers)):
            flags = ["--role=data_worker", f"--port={port}", f"--dispatcher={self.dispatcher}"]
            flags.append(f"--host={self.host}")
            specs.append(self._spec(f"data worker {number}", flags))
        return specs

    def _spec(self, name: str, flags: Sequence[str]) -> Spec:
        return Spec(
            name=name,
            part=HELPER,
            command=tuple(self.server(flags)),
            environ={**os.environ, "PYTHONUNBUFFERED": "1"},
            log=self.logs / f"{name.replace(' ', '-')}.log",
        )


def _none_silent(processes: Sequence[Process]) -> bool:
    return all(process.spoke.is_set() or process.ending() is not None for process in processes)
