"""Plans the cluster of `runner launch`: its members, their addresses, and how to start them."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from orbit_runner.config.resolve import ResolvedConfig
from orbit_runner.config.schema.modes import TRAINING
from orbit_runner.config.schema.runtime import ROLES, RuntimeConfig
from orbit_runner.config.schema.strategies import STRATEGIES
from orbit_runner.distribute.cluster.addresses import listening_socket
from orbit_runner.distribute.cluster.description import Cluster, members_of
from orbit_runner.distribute.cluster.roles import adapt_to_role
from orbit_runner.distribute.cluster.sources import NAME
from orbit_runner.errors import RunnerError
from orbit_runner.jobs.preflight import check_before_start, check_same_config, setting_error_scope
from orbit_runner.launch import LAUNCHED
from orbit_runner.launch.process import Output, Spec
from orbit_runner.launch.supervisor import Limits, supervise
from orbit_runner.utils.signals import SignalGuard

_HOST = "127.0.0.1"
# The roles that run until the launcher ends them.
SERVERS = {"multi_worker_mirrored": (), "parameter_server": ("worker", "ps")}
# Below the ephemeral ports of outgoing connections (from 32768 on Linux): between the choice of a
# port and the moment a member listens on it, TensorFlow is imported, and in those seconds any
# outgoing connection could take an ephemeral port.
_FIRST, _LAST = 15000, 29999
_TRIES = 1000
_GPUS = "CUDA_VISIBLE_DEVICES"


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaunchPlan:
    """What `runner launch` starts."""

    resolved: ResolvedConfig  # the config that the members will resolve
    mode: str
    resume: str
    run_arguments: Sequence[str]  # those of `runner run`, for each member
    counts: Mapping[str, int]  # role to number of processes
    model_dir: Path
    limits: Limits

    @property
    def runtime(self) -> RuntimeConfig:
        """The `runtime` section of the config."""
        return self.resolved.config.runtime


def count_members(
    runtime: RuntimeConfig, workers: int | None, ps: int | None, *, evaluator: bool
) -> dict[str, int]:
    """Returns the number of processes by role; those that are None are in the config.

    Raises `RunnerError` if the config does not describe a cluster.
    """
    strategy = runtime.distribution_strategy
    if strategy not in SERVERS:
        raise RunnerError(
            f"got `{strategy}`, which runs in "
            f"one process, but `runner launch` starts clusters\nallowed: {', '.join(SERVERS)}",
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
    servers = runtime.parameter_servers
    counts = {
        "chief": int(servers > 0),
        "worker": runtime.num_workers if workers is None else workers,
        "ps": servers if ps is None else ps,
        "evaluator": int(evaluator or runtime.num_evaluators > 0),
    }
    if counts["ps"] and not runtime.traits.is_asynchronous:
        raise RunnerError(
            f"`{strategy}` has no parameter servers", path="--ps", code="not-supported"
        )
    required = {"worker": ("--workers", "num_workers")}
    if counts["chief"]:
        required["ps"] = ("--ps", "num_parameter_servers")
    for role, (flag, setting) in required.items():
        if not counts[role]:
            raise RunnerError(
                f"is 0 or not set; set it, or runtime.{setting}", path=flag, code="not-set"
            )
    return {role: count for role, count in counts.items() if count}


def launch(plan: LaunchPlan, output: Output) -> int:
    """Runs the cluster until it ends. Returns the exit code."""
    _check_members(plan, next(make_clusters(plan.counts)))
    signals = SignalGuard()
    with signals.installed_scope():
        return supervise(lambda: member_specs(plan), output, signals, plan.limits)


def member_specs(plan: LaunchPlan) -> list[Spec]:
    """Returns the processes of an attempt."""
    strategy = plan.runtime.distribution_strategy
    run = [sys.executable, "-m", "orbit_runner", "run", *plan.run_arguments]
    return [
        Spec(
            name=str(cluster.me),
            serves=cluster.me.role in SERVERS[strategy],
            command=(*run, *_member_flags(plan.runtime, cluster)),
            environ=member_environ(cluster, number, strategy, plan.runtime.num_gpus),
            results=cluster.is_chief,
        )
        for number, cluster in enumerate(make_clusters(plan.counts))
    ]


def make_clusters(counts: Mapping[str, int]) -> Iterator[Cluster]:
    """Yields a cluster with free ports as each of its members sees it.

    `counts` is role to number of processes.
    """
    ports = iter(_free_ports(sum(counts.values())))
    jobs = {
        role: tuple(f"{_HOST}:{next(ports)}" for _ in range(counts[role]))
        for role in ROLES
        if counts.get(role)
    }
    for member in members_of(jobs):
        yield Cluster(jobs, member, NAME)


def _free_ports(count: int) -> list[int]:
    """Returns ports that were free a moment ago; raises an error if there are not enough.

    The ports are random, so that two launchers at the same time rarely choose the same.
    """
    ports: list[int] = []
    with contextlib.ExitStack() as held:
        for port in random.sample(range(_FIRST, _LAST + 1), _TRIES):
            if len(ports) == count:
                return ports
            with contextlib.suppress(OSError):
                held.enter_context(listening_socket(port))
                ports.append(port)
    raise RunnerError(
        f"cannot find {count} free ports from {_FIRST} to {_LAST} on this machine",
        code="unreachable",
    )


def member_environ(cluster: Cluster, number: int, strategy: str, gpus: int) -> dict[str, str]:
    """Returns the environment of a member, the `number`th of all, which uses `gpus` GPUs."""
    added = {NAME: cluster.tf_config(), LAUNCHED: "1", "PYTHONUNBUFFERED": "1"}
    if gpus > 0 and STRATEGIES[strategy].synchronous_workers:
        # Otherwise, each member would use the first GPUs.
        everything = ",".join(map(str, range((number + 1) * gpus)))
        there = [name for name in os.environ.get(_GPUS, everything).split(",") if name]
        added[_GPUS] = ",".join(there[number * gpus : (number + 1) * gpus])
    return {**os.environ, **added}


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
    config = plan.resolved.config.without("cluster")
    resolved = dataclasses.replace(plan.resolved, config=config)
    environ = {**os.environ, NAME: first.tf_config()}
    cluster = check_before_start(resolved, plan.mode, plan.model_dir, environ)
    with setting_error_scope(resolved):
        adapt_to_role(config, plan.mode, cluster)
    if plan.mode in TRAINING and plan.resume == "same":
        check_same_config(plan.resolved, plan.model_dir)
