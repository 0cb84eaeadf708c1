"""Plans the cluster of `runner launch`, and runs it after the checks of its members."""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from orbit_runner.config.resolve import ResolvedConfig
from orbit_runner.config.schema.modes import TRAINING
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute.cluster.description import Cluster
from orbit_runner.distribute.cluster.roles import adapt_to_role
from orbit_runner.distribute.cluster.tf_config import NAME
from orbit_runner.errors import RunnerError
from orbit_runner.jobs.preflight import check_before_start, check_same_config, setting_error_scope
from orbit_runner.launch.members import HOST, Attempt, Members, check_host
from orbit_runner.launch.process import ROLE_TRAITS, LogMultiplexer, Spec
from orbit_runner.launch.supervisor import Elastic, Job, Limits, possible_workers, supervise
from orbit_runner.utils.signals import Signals

_ATTEMPT = re.compile(r"attempt-(\d+)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaunchOptions:
    """How many processes are started, and how they are supervised."""

    workers: int | None  # None: `runtime.num_workers`
    ps: int | None  # parameter servers; None: `runtime.num_parameter_servers`
    evaluator: bool  # whether a separate process evaluates
    min_workers: int | None  # None: the number of workers is fixed
    rejoin_after: float  # seconds with fewer workers before all are tried again
    max_restarts: int
    grace: float | None  # seconds for members to save and exit; None: `runtime.grace_period`
    stall_timeout: float
    logs: Path | None  # None: `MODEL_DIR/logs`


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaunchPlan:
    """What `runner launch` starts."""

    options: LaunchOptions
    resolved: ResolvedConfig  # the config that the members will resolve
    mode: str
    resume: str
    run_arguments: tuple[str, ...]  # those of `runner run`, for each member
    counts: Mapping[str, int]  # role to number of processes
    model_dir: Path
    logs: Path
    attempts: int  # number of earlier attempts, whose logs are kept
    limits: Limits
    elastic: Elastic | None = None  # None if the number of workers is fixed

    @property
    def runtime(self) -> RuntimeConfig:
        """The `runtime` section of the config."""
        return self.resolved.config.runtime


def plan_launch(
    resolved: ResolvedConfig,
    options: LaunchOptions,
    *,
    mode: str,
    resume: str,
    model_dir: Path,
    run_arguments: Sequence[str],
) -> LaunchPlan:
    """Returns the plan; raises `RunnerError` if the config does not describe a cluster."""
    runtime = resolved.config.runtime
    _check_strategy(runtime)
    counts = _process_counts(options, runtime)
    _check_counts(runtime, counts)
    elastic = _make_elastic(options, runtime, counts["worker"])
    if elastic is not None:
        counts["worker"] = elastic.workers
    logs = options.logs or model_dir / "logs"
    return LaunchPlan(
        options=options,
        resolved=resolved,
        mode=mode,
        resume=resume,
        run_arguments=tuple(run_arguments),
        counts={role: count for role, count in counts.items() if count},
        model_dir=model_dir,
        logs=logs,
        attempts=_count_attempts(logs),
        elastic=elastic,
        limits=Limits(
            restarts=options.max_restarts,
            grace=runtime.grace_period if options.grace is None else options.grace,
            # One timeout until a member counts as lost, another until the last member has noticed.
            settle=2.0 * runtime.heartbeat_timeout + 10.0,
        ),
    )


def _process_counts(options: LaunchOptions, runtime: RuntimeConfig) -> dict[str, int]:
    servers = runtime.parameter_servers
    return {
        "chief": int(servers > 0),
        "worker": runtime.num_workers if options.workers is None else options.workers,
        "ps": servers if options.ps is None else options.ps,
        "evaluator": int(options.evaluator or runtime.num_evaluators > 0),
    }


def _check_strategy(runtime: RuntimeConfig) -> None:
    if runtime.distribution_strategy not in ROLE_TRAITS:
        raise RunnerError(
            f"got `{runtime.distribution_strategy}`, which runs in "
            f"one process, but `runner launch` starts clusters\nallowed: {', '.join(ROLE_TRAITS)}",
            path="runtime.distribution_strategy",
            code="not-supported",
        )
    if runtime.cluster_source == "none":
        raise RunnerError(
            "got `none`, but `runner launch` "
            "describes the cluster itself\nremove it, or start the members with `runner run`",
            path="runtime.cluster_source",
            code="not-supported",
        )
    if runtime.remote_cluster:
        raise RunnerError(
            "is not supported by `runner launch`, because one process "
            "drives the remote cluster: use `runner run`",
            path="runtime.remote_cluster",
            code="not-supported",
        )


def _check_counts(runtime: RuntimeConfig, counts: Mapping[str, int]) -> None:
    if counts["ps"] and not runtime.traits.is_asynchronous:
        raise RunnerError(
            f"`{runtime.distribution_strategy}` has no parameter servers",
            path="--ps",
            code="not-supported",
        )
    for role, flag, setting in (
        ("worker", "--workers", "num_workers"),
        ("ps", "--ps", "num_parameter_servers"),
    ):
        if not counts[role] and (role == "worker" or counts["chief"]):
            raise RunnerError(
                f"is 0 or not set; set it, or runtime.{setting}", path=flag, code="not-set"
            )


def _make_elastic(options: LaunchOptions, runtime: RuntimeConfig, most: int) -> Elastic | None:
    least = options.min_workers
    if least is None:
        return None
    if not runtime.traits.synchronous_workers:
        raise RunnerError(
            f"is not supported with `{runtime.distribution_strategy}`, whose "
            "workers are replaced one by one\nallowed: multi_worker_mirrored",
            path="--min_workers",
            code="not-supported",
        )
    logical = runtime.logical_replicas
    if not logical:
        raise RunnerError(
            "requires runtime.logical_replicas, or the weights would depend on the "
            f"number of workers\nset it, for example --runtime.logical_replicas={most}",
            path="--min_workers",
            code="not-set",
        )
    if runtime.uses_all_gpus:
        raise RunnerError(
            "runtime.num_gpus is -1, so the number of devices of a worker is not "
            "known\nset runtime.num_gpus to the number of GPUs of a worker",
            path="--min_workers",
            code="not-set",
        )
    if not 1 <= least <= most:
        raise RunnerError(
            f"got {least}, allowed: 1 to {most}, the number of workers",
            path="--min_workers",
            code="out-of-range",
        )
    devices = max(runtime.num_gpus, 1)
    sizes = possible_workers(logical, devices, least, most)
    if not sizes:
        each = f" with {devices} devices each" if devices > 1 else ""
        alternatives = possible_workers(logical, devices, 1, logical)
        allowed = ", ".join(map(str, alternatives)) or "none"
        raise RunnerError(
            f"no number of workers from {least} to {most}{each} divides "
            f"runtime.logical_replicas, which is {logical}\nallowed numbers of workers: {allowed}",
            path="--min_workers",
            code="not-divisible",
        )
    return Elastic(sizes, options.max_restarts, options.rejoin_after)


def _count_attempts(logs: Path) -> int:
    matches = [_ATTEMPT.fullmatch(path.name) for path in logs.glob("attempt-*")]
    return max((int(match[1]) for match in matches if match), default=0)


def launch(plan: LaunchPlan, output: LogMultiplexer) -> int:
    """Runs the cluster until it ends. Returns the exit code."""
    check_host(HOST)
    signals = Signals()
    with signals.handler_scope():
        job = Job(output, signals, plan.limits, plan.elastic)
        return supervise(job, plan.counts, _Specs(plan, job))


class _Specs:
    """Returns the processes of each attempt; before the first, runs the checks of the members."""

    def __init__(self, plan: LaunchPlan, job: Job) -> None:
        self._plan = plan
        self._job = job
        self._has_started = False
        self._skipped = 0

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
            stall_timeout=plan.options.stall_timeout,
        )
        return members.specs(attempt)

    def _logs(self, attempt: Attempt) -> Path:
        return self._plan.logs / f"attempt-{self._plan.attempts + attempt.number + self._skipped}"

    def _command(self, cluster: Cluster, attempt: Attempt) -> list[str]:
        plan = self._plan
        added = [
            *_member_flags(plan.runtime, cluster),
            # Members keep their loops short enough to stop within it.
            *([f"--runtime.grace_period={plan.options.grace}"] if plan.options.grace else []),
        ]
        return [sys.executable, "-m", "orbit_runner", "run", *plan.run_arguments, *added]


def _create_directory(directory: Path) -> bool:
    """Creates a directory. Returns False if it exists already."""
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        directory.mkdir()
    except FileExistsError:
        return False
    except OSError as error:
        raise RunnerError(
            f"cannot create {directory}: {error.strerror}", path="--model_dir", code="not-writable"
        ) from error
    return True


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


def _check_members(plan: LaunchPlan, attempt: Attempt) -> None:
    """Runs the checks of the members, so that a mistake is reported once and before any starts."""
    first = next(attempt.clusters())
    runtime = plan.runtime.replace(
        worker_hosts=None,
        num_workers=0,
        num_parameter_servers=0,
    )
    config = plan.resolved.config.replace(runtime=runtime)
    resolved = dataclasses.replace(plan.resolved, config=config)
    environ = {**os.environ, NAME: first.tf_config()}
    cluster = check_before_start(resolved, plan.mode, plan.model_dir, environ)
    with setting_error_scope(resolved):
        adapt_to_role(config, plan.mode, cluster)
    if plan.mode in TRAINING and plan.resume == "same":
        check_same_config(plan.resolved, plan.model_dir)
