"""The plan of `runner launch`, made from its flags and the config of the members."""

from __future__ import annotations

import argparse
import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from orbit_runner.cli.command import Parser, parse_flags
from orbit_runner.cli.commands.run import add_flags, choose_model_dir
from orbit_runner.cli.flags.config_flags import build_request, refuse_streams
from orbit_runner.cli.flags.values import MODEL_DIR, SHARED
from orbit_runner.config.resolve import ResolvedConfig, resolve
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.errors import RunnerError
from orbit_runner.launch.members import DATA
from orbit_runner.launch.process import ROLE_TRAITS
from orbit_runner.launch.supervisor import Elastic, Limits, possible_workers

_ATTEMPT = re.compile(r"attempt-(\d+)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What `runner launch` starts."""

    launch_flags: argparse.Namespace  # flags of `runner launch`
    run_flags: argparse.Namespace  # flags of `runner run`, parsed
    run_arguments: tuple[str, ...]  # the same, not parsed
    resolved: ResolvedConfig
    counts: Mapping[str, int]  # role, or `DATA`, to number of processes
    model_dir: Path
    logs: Path
    attempts: int  # number of earlier attempts, whose logs are kept
    limits: Limits
    elastic: Elastic | None = None  # None if the number of workers is fixed

    @property
    def runtime(self) -> RuntimeConfig:
        """The `runtime` section of the config."""
        return self.resolved.config.runtime


def make_plan(launch_flags: argparse.Namespace, arguments: Sequence[str]) -> Plan:
    """Returns the plan, with the config that the members will resolve.

    `launch_flags` are the flags of `runner launch`, and `arguments` those of `runner run`. Raises
    `RunnerError` if the config does not resolve or does not describe a cluster.
    """
    parser = Parser("run")
    add_flags(parser, dataclasses.replace(MODEL_DIR, use=SHARED))
    run_flags = parse_flags(parser, arguments)
    refuse_streams(run_flags, "each member reads it")
    resolved = resolve(build_request(run_flags))
    runtime = resolved.config.runtime
    _check_strategy(runtime)
    counts = _process_counts(launch_flags, runtime)
    _check_counts(runtime, counts)
    elastic = _make_elastic(launch_flags, runtime, counts["worker"])
    if elastic is not None:
        counts["worker"] = elastic.workers
    model_dir = choose_model_dir(run_flags, resolved)
    logs = Path(launch_flags.logs) if launch_flags.logs else model_dir / "logs"
    return Plan(
        launch_flags=launch_flags,
        run_flags=run_flags,
        run_arguments=tuple(arguments),
        resolved=resolved,
        counts={role: count for role, count in counts.items() if count},
        model_dir=model_dir,
        logs=logs,
        attempts=_count_attempts(logs),
        elastic=elastic,
        limits=Limits(
            restarts=launch_flags.max_restarts,
            grace=runtime.grace_period if launch_flags.grace is None else launch_flags.grace,
            # One timeout until a member counts as lost, another until the last member has noticed.
            settle=2.0 * runtime.heartbeat_timeout + 10.0,
        ),
    )


def _process_counts(launch_flags: argparse.Namespace, runtime: RuntimeConfig) -> dict[str, int]:
    servers = runtime.parameter_servers
    return {
        "chief": int(servers > 0),
        "worker": runtime.num_workers if launch_flags.workers is None else launch_flags.workers,
        "ps": servers if launch_flags.ps is None else launch_flags.ps,
        "evaluator": int(launch_flags.evaluator or runtime.num_evaluators > 0),
        DATA: launch_flags.data_workers,
    }


def _check_strategy(runtime: RuntimeConfig) -> None:
    if runtime.distribution_strategy not in ROLE_TRAITS:
        raise RunnerError(
            f"runtime.distribution_strategy: got `{runtime.distribution_strategy}`, which runs in "
            f"one process, but `runner launch` starts clusters\nallowed: {', '.join(ROLE_TRAITS)}"
        )
    if runtime.cluster_source not in ("auto", "tf_config"):
        raise RunnerError(
            f"runtime.cluster_source: got `{runtime.cluster_source}`, but `runner launch` "
            "describes the cluster itself\nremove it, or start the members with `runner run`"
        )
    if runtime.remote_cluster:
        raise RunnerError(
            "runtime.remote_cluster: is not supported by `runner launch`, because one process "
            "drives the remote cluster: use `runner run`"
        )


def _check_counts(runtime: RuntimeConfig, counts: Mapping[str, int]) -> None:
    if counts[DATA] and runtime.traits.is_asynchronous:
        raise RunnerError(
            "--data_workers: is not supported with `parameter_server`, whose workers make their "
            "own batches"
        )
    if counts["ps"] and not runtime.traits.is_asynchronous:
        raise RunnerError(f"--ps: `{runtime.distribution_strategy}` has no parameter servers")
    for role, flag, setting in (
        ("worker", "--workers", "num_workers"),
        ("ps", "--ps", "num_parameter_servers"),
    ):
        if not counts[role] and (role == "worker" or counts["chief"]):
            raise RunnerError(f"{flag}: is 0 or not set; set it, or runtime.{setting}")


def _make_elastic(
    launch_flags: argparse.Namespace, runtime: RuntimeConfig, most: int
) -> Elastic | None:
    least = launch_flags.min_workers
    if least is None:
        return None
    if not runtime.traits.synchronous_workers:
        raise RunnerError(
            f"--min_workers: is not supported with `{runtime.distribution_strategy}`, whose "
            "workers are replaced one by one\nallowed: multi_worker_mirrored"
        )
    logical = runtime.logical_replicas
    if not logical:
        raise RunnerError(
            "--min_workers: requires runtime.logical_replicas, or the weights would depend on the "
            f"number of workers\nset it, for example --runtime.logical_replicas={most}"
        )
    if runtime.uses_all_gpus:
        raise RunnerError(
            "--min_workers: runtime.num_gpus is -1, so the number of devices of a worker is not "
            "known\nset runtime.num_gpus to the number of GPUs of a worker"
        )
    if not 1 <= least <= most:
        raise RunnerError(
            f"--min_workers: got {least}, allowed: 1 to {most}, the number of workers"
        )
    devices = max(runtime.num_gpus, 1)
    sizes = possible_workers(logical, devices, least, most)
    if not sizes:
        each = f" with {devices} devices each" if devices > 1 else ""
        alternatives = possible_workers(logical, devices, 1, logical)
        allowed = ", ".join(map(str, alternatives)) or "none"
        raise RunnerError(
            f"--min_workers: no number of workers from {least} to {most}{each} divides "
            f"runtime.logical_replicas, which is {logical}\nallowed numbers of workers: {allowed}"
        )
    return Elastic(sizes, launch_flags.max_restarts, launch_flags.rejoin_after)


def _count_attempts(logs: Path) -> int:
    found = [_ATTEMPT.fullmatch(path.name) for path in logs.glob("attempt-*")]
    return max((int(match[1]) for match in found if match), default=0)
