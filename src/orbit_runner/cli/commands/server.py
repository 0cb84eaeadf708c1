"""`runner server`: runs a worker or parameter server for runs on other machines."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from orbit_runner.cli.command import Command, Parser
from orbit_runner.cli.flags.config_flags import add_config_flags, build_request
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute.cluster.description import Cluster, check_cluster
from orbit_runner.distribute.cluster.from_config import from_config, parse_remote_cluster
from orbit_runner.distribute.cluster.tf_config import NAME, from_tf_config
from orbit_runner.errors import RunnerError, format_choices

_DESCRIPTION = """\
Run a worker or parameter server (ps) for runs on other machines, until SIGTERM, SIGHUP or Ctrl-C.

  runner server --role=worker --index=0 --cluster='worker=a:2222;ps=b:2222'

It serves a run whose --runtime.remote_cluster has the same value as --cluster. TF_CONFIG, or
runtime.cluster in a config, can describe the cluster instead. A server prints one line when
ready."""

_ROLES = ("worker", "ps")


def main(flags: argparse.Namespace) -> int:
    """Runs a server until a signal arrives. Returns 128 + n for signal n."""
    _refuse_unused_flags(flags)
    cluster = _find_cluster(flags)
    if cluster.me.role not in _ROLES:
        raise RunnerError(
            f"this process is {cluster.me}, expected a {format_choices(_ROLES)}; start a chief "
            "or an evaluator with `runner run`",
            path=cluster.source,
            code="bad-cluster",
        )
    from orbit_runner.distribute.servers import serve_role
    from orbit_runner.distribute.tf_environment import prepare_environment, redirect_native_output

    prepare_environment(RuntimeConfig())
    redirect_native_output(None)
    return serve_role(cluster, run_exit_code=lambda: None)


def _add_flags(parser: Parser) -> None:
    parser.add_argument(
        "--role", choices=_ROLES, help="role of this process; required with --cluster"
    )
    parser.add_argument(
        "--index", type=int, metavar="I", help="index of this process within its role"
    )
    parser.add_argument(
        "--cluster", metavar="TEXT", help="addresses of each role, as in the example above"
    )
    add_config_flags(parser)


def _refuse_unused_flags(flags: argparse.Namespace) -> None:
    """Raises an error if flags have no effect in combination with the others."""
    if flags.cluster:
        _refuse_flags(_config_flags(flags), "--cluster describes the cluster")
    elif os.environ.get(NAME, "").strip():
        _refuse_flags(_config_flags(flags), f"{NAME} describes the cluster")


def _refuse_flags(unused: Sequence[str], reason: str) -> None:
    if unused:
        raise RunnerError(
            f"has no effect here, because {reason}\nremove {', '.join(unused)}",
            path=unused[0],
            code="no-effect",
        )


def _given_flags(flags: argparse.Namespace, *names: str) -> list[str]:
    return [f"--{name}" for name in names if getattr(flags, name) not in (None, [])]


def _config_flags(flags: argparse.Namespace) -> list[str]:
    files = _given_flags(
        flags, "experiment", "config_file", "gin_file", "params_override", "gin_param"
    )
    request = build_request(flags)
    imports = ["--import"] if request.imports else []
    return list(dict.fromkeys([*files, *(flag for flag, _, _ in request.flags), *imports]))


def _find_cluster(flags: argparse.Namespace) -> Cluster:
    if flags.cluster:
        jobs = parse_remote_cluster(flags.cluster, "--cluster")
        if flags.role is None:
            raise RunnerError(
                f"is not set; allowed: {', '.join(_ROLES)}", path="--role", code="not-set"
            )
        return check_cluster(jobs, flags.role, _require_index(flags, jobs), "--cluster")
    cluster = _describe_cluster(flags)
    if flags.role is None and flags.index is None:
        return cluster
    role = flags.role or cluster.me.role
    index = flags.index if flags.index is not None else _default_index(cluster, role)
    return check_cluster(cluster.jobs, role, index, cluster.source)


def _describe_cluster(flags: argparse.Namespace) -> Cluster:
    if os.environ.get(NAME, "").strip():
        return from_tf_config(os.environ[NAME])
    runtime = RuntimeConfig()
    request = build_request(flags)
    if request != Request():
        runtime = resolve(request).config.runtime
    if not runtime.cluster.jobs():
        raise RunnerError(
            f"no cluster is described: set --cluster, {NAME}, or runtime.cluster", code="not-set"
        )
    changes = {
        "task_type": flags.role or runtime.task_type,
        "task_index": flags.index if flags.index is not None else runtime.task_index,
    }
    return from_config(runtime.replace(**changes))


def _default_index(cluster: Cluster, role: str) -> int:
    return cluster.me.index if role == cluster.me.role else 0


def _require_index(flags: argparse.Namespace, jobs: dict[str, tuple[str, ...]]) -> int:
    several = len(jobs.get(flags.role, ()))
    if flags.index is None and several > 1:
        raise RunnerError(
            f"is not set, but --cluster has {several} × {flags.role}",
            path="--index",
            code="not-set",
        )
    return flags.index or 0


COMMAND = Command(
    "server",
    _DESCRIPTION,
    _add_flags,
    ["--role=worker --index=0 --cluster='worker=a:2222;ps=b:2222'"],
    main,
)
