"""Starts the cluster that `runner launch` planned, after running the checks of its members."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from orbit_runner.cli.launch_plan import Plan
from orbit_runner.cli.preflight import check_before_start, check_same_config, setting_error_scope
from orbit_runner.config.schema.modes import TRAINING
from orbit_runner.config.schema.runtime import ClusterConfig, RuntimeConfig
from orbit_runner.distribute.cluster.description import Cluster
from orbit_runner.distribute.cluster.roles import adapt_to_role
from orbit_runner.errors import RunnerError
from orbit_runner.launch.members import HOST, Attempt, Members, check_host, service_specs
from orbit_runner.launch.process import LogMultiplexer, Spec
from orbit_runner.launch.supervisor import Job, supervise
from orbit_runner.utils.signals import Signals


def launch(plan: Plan, output: LogMultiplexer) -> int:
    """Runs the cluster until it ends. Returns the exit code."""
    check_host(HOST)
    signals = Signals()
    with signals.handler_scope():
        job = Job(output, signals, plan.limits, plan.elastic)
        return supervise(job, plan.counts, _Specs(plan, job))


class _Specs:
    """Returns the processes of each attempt; before the first, runs the checks of the members."""

    def __init__(self, plan: Plan, job: Job) -> None:
        self._plan, self._job = plan, job
        self._has_started, self._skipped = False, 0

    def __call__(self, attempt: Attempt) -> Sequence[Spec]:
        plan = self._plan
        if not self._has_started:
            _check_members(plan, attempt)
        while not _create_directory(self._logs(attempt)):
            self._skipped += 1  # Another launch uses the same directory.
        if not self._has_started:
            self._job.output.note(f"logs: {self._logs(attempt)}")
            self._has_started = True
        members = Members(
            strategy=plan.runtime.distribution_strategy,
            command=self._command,
            logs=self._logs,
            gpus=plan.runtime.num_gpus,
            stall_timeout=plan.launch_flags.stall_timeout,
        )
        return [*service_specs(attempt.services, self._logs(attempt)), *members.specs(attempt)]

    def _logs(self, attempt: Attempt) -> Path:
        return self._plan.logs / f"attempt-{self._plan.attempts + attempt.number + self._skipped}"

    def _command(self, cluster: Cluster, attempt: Attempt) -> list[str]:
        plan = self._plan
        added = [
            # The default depends on the time, but all members must use the same directory.
            *([] if plan.run_flags.model_dir else [f"--model_dir={plan.model_dir}"]),
            *_member_flags(plan.runtime, cluster),
            *_service_flags(attempt, cluster),
            # Members keep their loops short enough to stop within it.
            *(
                [f"--runtime.grace_period={plan.launch_flags.grace}"]
                if plan.launch_flags.grace
                else []
            ),
        ]
        return [sys.executable, "-m", "orbit_runner", "run", *plan.run_arguments, *added]


def _create_directory(folder: Path) -> bool:
    """Creates a directory. Returns False if it exists already."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir()
    except FileExistsError:
        return False
    except OSError as error:
        raise RunnerError(f"--model_dir: cannot create {folder}: {error.strerror}") from error
    return True


def _service_flags(attempt: Attempt, cluster: Cluster) -> list[str]:
    """Returns the flag with the addresses of the data services."""
    if not attempt.services:
        return []
    if cluster.me.role == "evaluator":
        # The evaluator outlives an attempt, but the data services do not.
        return ["--runtime.tf_data_service=null"]
    services = ",".join(f"grpc://{address}" for address in attempt.services)
    return [f"--runtime.tf_data_service={services}"]


def _member_flags(runtime: RuntimeConfig, cluster: Cluster) -> list[str]:
    """Returns flags that override the numbers of workers and parameter servers in the config."""
    counts = {
        "num_workers": (runtime.num_workers, len(cluster.jobs.get("worker", ()))),
        "num_parameter_servers": (runtime.num_parameter_servers, len(cluster.jobs.get("ps", ()))),
    }
    return [
        f"--runtime.{name}={actual}"
        for name, (configured, actual) in counts.items()
        if configured and configured != actual
    ]


def _check_members(plan: Plan, attempt: Attempt) -> None:
    """Runs the checks of the members, so that a mistake is reported once and before any starts."""
    first = next(attempt.clusters())
    runtime = plan.runtime.replace(
        cluster_source="config",
        cluster=ClusterConfig(**{role: list(addresses) for role, addresses in first.jobs.items()}),
        task_type=first.me.role,
        task_index=first.me.index,
        worker_hosts=None,
        num_workers=0,
        num_parameter_servers=0,
        tf_data_service=None if attempt.services else plan.runtime.tf_data_service,
    )
    config = plan.resolved.config.replace(runtime=runtime)
    resolved = dataclasses.replace(plan.resolved, config=config)
    cluster = check_before_start(resolved, plan.run_flags.mode, plan.model_dir)
    with setting_error_scope(resolved):
        adapt_to_role(config, plan.run_flags.mode, cluster)
    if plan.run_flags.mode in TRAINING and plan.run_flags.resume == "same":
        check_same_config(plan.resolved, plan.model_dir)
