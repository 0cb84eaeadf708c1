"""Starts what `runner launch` has planned, after the checks that the members would fail."""

from __future__ import annotations

import dataclasses
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from orbit_runner.cli.launch_plan import Plan
from orbit_runner.cli.preflight import blamed, check_before_start, check_same_config
from orbit_runner.config.cluster import ClusterConfig
from orbit_runner.config.modes import TRAINING
from orbit_runner.config.runtime import RuntimeConfig
from orbit_runner.errors import RunnerError
from orbit_runner.runtime.cluster.description import Cluster
from orbit_runner.runtime.cluster.roles import in_role
from orbit_runner.runtime.launch.data_service import DataService
from orbit_runner.runtime.launch.gathering import Gathered, Gathering, OneMachine
from orbit_runner.runtime.launch.job import Job
from orbit_runner.runtime.launch.members import Members, here
from orbit_runner.runtime.launch.process import Spec
from orbit_runner.runtime.launch.rendezvous import Rendezvous
from orbit_runner.runtime.launch.screen import Screen
from orbit_runner.runtime.launch.signals import Signals
from orbit_runner.runtime.launch.supervise import supervise

_DATA_SERVICE_SECONDS = 120.0


def launch(plan: Plan, screen: Screen) -> int:
    """Starts the members, and keeps them going to the end.

    Args:
        plan: What to start.
        screen: Where all lines go.

    Returns:
        The exit code.

    Raises:
        RunnerError: The members could not run as the config is written.
    """
    signals = Signals()
    with signals.installed(), tempfile.TemporaryDirectory(prefix="runner-launch-") as journal:
        gathering = _gathering(plan, screen)
        job = Job(gathering, screen, signals, plan.limits)
        return supervise(job, _Specs(plan, job, Path(journal)))


def _gathering(plan: Plan, screen: Screen) -> Gathering:
    own = plan.own
    if own.nnodes == 1:
        return OneMachine(plan.counts, plan.shared)
    return Rendezvous(
        own.rendezvous,
        node=own.node_rank,
        nodes=own.nnodes,
        counts=plan.counts,
        shared=plan.shared,
        screen=screen,
        host=own.host,
        timeout=own.rendezvous_timeout,
    )


class _Specs:
    """Makes the processes of an attempt; before the first, checks and starts what they need."""

    def __init__(self, plan: Plan, job: Job, journal: Path) -> None:
        self._plan, self._job, self._journal = plan, job, journal
        self._begun = False

    def __call__(self, gathered: Gathered) -> Sequence[Spec]:
        plan = self._plan
        if not self._begun:
            _check(plan, gathered)
            self._job.screen.note(f"logs: {self._logs(gathered)}")
            if plan.own.data_workers:
                self._data_service(gathered).start(self._job, _DATA_SERVICE_SECONDS)
            self._begun = True
        members = Members(
            strategy=plan.runtime.distribution_strategy,
            command=self._command,
            logs=self._logs,
            gpus=plan.runtime.num_gpus,
        )
        return members.specs(gathered)

    def _logs(self, gathered: Gathered) -> Path:
        own, shared = self._plan.own, gathered.shared
        logs = Path(own.logs) if own.logs else Path(shared["model_dir"]) / "logs"
        return logs / f"attempt-{shared['attempts'] + gathered.attempt}"

    def _command(self, cluster: Cluster, gathered: Gathered) -> list[str]:
        added = [*gathered.shared["added"], *_counted(self._plan.runtime, cluster)]
        return [sys.executable, "-m", "orbit_runner", "run", *self._plan.arguments, *added]

    def _data_service(self, gathered: Gathered) -> DataService:
        if "dispatcher" not in gathered.shared:
            raise RunnerError("--data_workers: node 0 was started without, and has no dispatcher")
        return DataService(
            dispatcher=gathered.shared["dispatcher"],
            dispatches=self._plan.own.node_rank == 0,
            workers=self._plan.own.data_workers,
            host=self._job.gathering.host,
            journal=self._journal,
            logs=self._logs(gathered),
        )


def _counted(runtime: RuntimeConfig, cluster: Cluster) -> list[str]:
    """Returns the flags by which the numbers of members win over other ones in the config."""
    counts = {
        "num_workers": (runtime.num_workers, len(cluster.jobs.get("worker", ()))),
        "num_parameter_servers": (runtime.num_parameter_servers, len(cluster.jobs.get("ps", ()))),
    }
    return [
        f"--runtime.{name}={there}"
        for name, (asked, there) in counts.items()
        if asked and asked != there
    ]


def _check(plan: Plan, gathered: Gathered) -> None:
    """Checks what each member will check, so that a mistake is told once, and before any starts."""
    first = next(here(gathered), None)
    if first is None:
        return
    model_dir = Path(gathered.shared["model_dir"])
    runtime = plan.runtime.replace(
        cluster_source="config",
        cluster=ClusterConfig(**{role: list(there) for role, there in first.jobs.items()}),
        task_type=first.me.role,
        task_index=first.me.index,
        worker_hosts=None,
        num_workers=0,
        num_parameter_servers=0,
    )
    config = plan.resolved.config.replace(runtime=runtime)
    resolved = dataclasses.replace(plan.resolved, config=config)
    cluster = check_before_start(resolved, plan.theirs.mode, model_dir)
    with blamed(resolved):
        in_role(config, plan.theirs.mode, cluster)
    if plan.theirs.mode in TRAINING and plan.theirs.resume == "same":
        check_same_config(plan.resolved, model_dir)
