"""Plans the cluster of `runner launch`: its members, their addresses, and how to start them."""

from __future__ import annotations

import dataclasses
import itertools
import os
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from orbit_runner.config.resolve import ResolvedConfig
from orbit_runner.config.schema.modes import TRAINING
from orbit_runner.config.schema.runtime import ROLES, RuntimeConfig
from orbit_runner.config.schema.strategies import STRATEGIES
from orbit_runner.distribute.cluster.addresses import port_problem
from orbit_runner.distribute.cluster.description import Cluster, members_of
from orbit_runner.distribute.cluster.resolver import NAME, adapt_to_role
from orbit_runner.errors import RunnerError
from orbit_runner.jobs.preflight import check_before_start, check_same_config, setting_error_scope
from orbit_runner.launch import LAUNCHED
from orbit_runner.launch.supervisor import Limits, Output, Spec, supervise
from orbit_runner.utils.signals import SignalGuard

# Below the ephemeral ports of outgoing connections (from 32768 on Linux): between the choice of a
# port and the moment a member listens on it, TensorFlow is imported, and in those seconds any
# outgoing connection could take an ephemeral port.
_PORTS = range(15000, 30000)
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


def count_members(
    runtime: RuntimeConfig, workers: int | None, ps: int | None, *, evaluator: bool
) -> dict[str, int]:
    """Returns the number of processes by role; those that are None are in the config.

    Raises `RunnerError` if the config does not describe a cluster.
    """
    strategy = runtime.distribution_strategy
    servers = runtime.parameter_servers
    counts = {
        "chief": int(servers > 0),
        "worker": runtime.num_workers if workers is None else workers,
        "ps": servers if ps is None else ps,
        "evaluator": int(evaluator or runtime.num_evaluators > 0),
    }
    allowed = ", ".join(name for name, traits in STRATEGIES.items() if traits.is_clustered)
    missing = "is 0 or not set; set it, or runtime."
    for is_wrong, path, code, text in (
        (not runtime.traits.is_clustered, "runtime.distribution_strategy", "not-supported",
         f"got `{strategy}`, which runs in one process, but `runner launch` starts clusters\n"
         f"allowed: {allowed}"),
        (runtime.remote_cluster, "runtime.remote_cluster", "not-supported",
         "is not supported by `runner launch`, because one process drives the remote cluster: "
         "use `runner run`"),
        (counts["ps"] and not servers, "--ps", "not-supported",
         f"`{strategy}` has no parameter servers"),
        (not counts["worker"], "--workers", "not-set", f"{missing}num_workers"),
        (servers and not counts["ps"], "--ps", "not-set", f"{missing}num_parameter_servers"),
    ):  # fmt: skip
        if is_wrong:
            raise RunnerError(text, path=path, code=code)
    return {role: count for role, count in counts.items() if count}


def launch(plan: LaunchPlan, output: Output) -> int:
    """Runs the cluster until it ends. Returns the exit code."""
    _check_members(plan, next(make_clusters(plan.counts)))
    signals = SignalGuard()
    with signals.installed_scope():
        return supervise(lambda: member_specs(plan), output, signals, plan.limits)


def member_specs(plan: LaunchPlan) -> list[Spec]:
    """Returns the processes of an attempt."""
    runtime = plan.resolved.config.runtime
    # The flags of the launcher override the numbers of members in the config.
    numbers = {"num_parameter_servers": "ps", "num_workers": "worker"}
    flags = [
        f"--runtime.{name}={plan.counts[role]}"
        for name, role in numbers.items()
        if getattr(runtime, name) not in (0, plan.counts.get(role))
    ]
    run = (sys.executable, "-m", "orbit_runner", "run", *plan.run_arguments, *flags)
    return [
        member_spec(run, cluster, number, runtime.distribution_strategy, runtime.num_gpus)
        for number, cluster in enumerate(make_clusters(plan.counts))
    ]


def member_spec(
    command: Sequence[str], cluster: Cluster, number: int, strategy: str, gpus: int = 0
) -> Spec:
    """Returns the process of a member, the `number`th of all, which uses `gpus` GPUs."""
    traits = STRATEGIES[strategy]
    added = {NAME: cluster.tf_config(), LAUNCHED: "1", "PYTHONUNBUFFERED": "1"}
    if gpus > 0 and traits.synchronous_workers:
        # Otherwise, each member would use the first GPUs.
        everything = ",".join(map(str, range((number + 1) * gpus)))
        gpu_names = [name for name in os.environ.get(_GPUS, everything).split(",") if name]
        added[_GPUS] = ",".join(gpu_names[number * gpus : (number + 1) * gpus])
    return Spec(
        name=str(cluster.me),
        serves=traits.is_asynchronous and cluster.me.role in ("worker", "ps"),
        command=tuple(command),
        environ={**os.environ, **added},
        results=cluster.is_chief,
    )


def make_clusters(counts: Mapping[str, int]) -> Iterator[Cluster]:
    """Yields a cluster as each of its members sees it; `counts` is role to number of processes.

    The ports are random, so that two launchers at the same time rarely choose the same.
    """
    addresses = (f"127.0.0.1:{port}" for port in random.sample(_PORTS, len(_PORTS)))
    free = (address for address in addresses if not port_problem(address))
    jobs = {role: tuple(itertools.islice(free, counts[role])) for role in ROLES if counts.get(role)}
    for member in members_of(jobs):
        yield Cluster(jobs, member, NAME)


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
