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
from orbit_runner.distribute.cluster.sources import NAME
from orbit_runner.errors import RunnerError
from orbit_runner.jobs.preflight import check_before_start, check_same_config, setting_error_scope
from orbit_runner.launch.members import SERVERS, TRAINERS, make_clusters, member_environ
from orbit_runner.launch.process import Output, Spec
from orbit_runner.launch.supervisor import Limits, supervise
from orbit_runner.utils.signals import Signals

_ATTEMPT = re.compile(r"attempt-(\d+)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaunchOptions:
    """How many processes are started, and how they are supervised."""

    workers: int | None  # None: `runtime.num_workers`
    ps: int | None  # parameter servers; None: `runtime.num_parameter_servers`
    evaluator: bool  # whether a separate process evaluates
    restarts: int  # how often all members are started again after one is lost
    logs: Path | None  # None: `MODEL_DIR/logs`


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaunchPlan:
    """What `runner launch` starts."""

    resolved: ResolvedConfig  # the config that the members will resolve
    mode: str
    resume: str
    run_arguments: tuple[str, ...]  # those of `runner run`, for each member
    counts: Mapping[str, int]  # role to number of processes
    model_dir: Path
    logs: Path
    limits: Limits

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
    return LaunchPlan(
        resolved=resolved,
        mode=mode,
        resume=resume,
        run_arguments=tuple(run_arguments),
        counts={role: count for role, count in counts.items() if count},
        model_dir=model_dir,
        logs=options.logs or model_dir / "logs",
        limits=Limits(restarts=options.restarts, grace=runtime.grace_period),
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
    if runtime.distribution_strategy not in TRAINERS:
        raise RunnerError(
            f"got `{runtime.distribution_strategy}`, which runs in "
            f"one process, but `runner launch` starts clusters\nallowed: {', '.join(TRAINERS)}",
            path="runtime.distribution_strategy",
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


def launch(plan: LaunchPlan, output: Output) -> int:
    """Runs the cluster until it ends. Returns the exit code."""
    signals = Signals()
    with signals.handler_scope():
        return supervise(_Specs(plan, output), output, signals, plan.limits)


class _Specs:
    """Returns the processes of each attempt; before the first, runs the checks of the members."""

    def __init__(self, plan: LaunchPlan, output: Output) -> None:
        self._plan = plan
        self._output = output
        matches = [_ATTEMPT.fullmatch(path.name) for path in plan.logs.glob("attempt-*")]
        self._last = max((int(match[1]) for match in matches if match), default=0)

    def __call__(self, attempt: int) -> list[Spec]:
        plan = self._plan
        clusters = [*make_clusters(plan.counts)]
        if attempt == 1:
            _check_members(plan, clusters[0])
        self._last += 1
        while not _create_directory(logs := plan.logs / f"attempt-{self._last}"):
            self._last += 1  # Another launch uses the same directory.
        if attempt == 1:
            self._output.note(f"logs: {logs}")
        return [self._spec(cluster, number, logs) for number, cluster in enumerate(clusters)]

    def _spec(self, cluster: Cluster, number: int, logs: Path) -> Spec:
        runtime = self._plan.runtime
        strategy = runtime.distribution_strategy
        me = cluster.me
        run = [sys.executable, "-m", "orbit_runner", "run", *self._plan.run_arguments]
        return Spec(
            name=str(me),
            trains=me.role in TRAINERS[strategy],
            serves=me.role in SERVERS[strategy],
            command=(*run, *_member_flags(runtime, cluster)),
            environ=member_environ(cluster, number, strategy, runtime.num_gpus),
            log=logs / f"{me.role}-{me.index}.log",
            results=cluster.is_chief,
        )


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


def _check_members(plan: LaunchPlan, first: Cluster) -> None:
    """Runs the checks of the members, so that a mistake is reported once and before any starts."""
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
