"""`runner server`: runs a worker or parameter server for runs on other machines."""

from __future__ import annotations

import argparse
import os

from orbit_runner.cli.command import Command
from orbit_runner.cli.flags.rows import flag
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute.cluster.description import Cluster, check_cluster
from orbit_runner.distribute.cluster.resolver import NAME, from_tf_config, parse_remote_cluster
from orbit_runner.errors import RunnerError, format_choices

_EXAMPLE = "--role=worker --index=0 --cluster='worker=a:2222;ps=b:2222'"
_DESCRIPTION = f"""\
Run a worker or parameter server (ps) for runs on other machines, until SIGTERM, SIGHUP or Ctrl-C.

  runner server {_EXAMPLE}

It serves a run whose --runtime.remote_cluster has the same value as --cluster. TF_CONFIG can
describe the cluster instead. A server prints one line when ready."""

_ROLES = ("worker", "ps")


def main(flags: argparse.Namespace) -> int:
    """Runs a server until a signal arrives. Returns 128 + n for signal n."""
    cluster = _find_cluster(flags)
    if cluster.me.role not in _ROLES:
        raise RunnerError(
            f"this process is {cluster.me}, expected a {format_choices(_ROLES)}; start a chief "
            "or an evaluator with `runner run`",
            path=cluster.source,
            code="bad-cluster",
        )
    from orbit_runner.distribute.parameter_servers import serve_role
    from orbit_runner.distribute.tf_environment import prepare_environment, redirect_native_output

    prepare_environment(RuntimeConfig())
    redirect_native_output(None)
    return serve_role(cluster)


def _find_cluster(flags: argparse.Namespace) -> Cluster:
    if flags.cluster:
        jobs = parse_remote_cluster(flags.cluster, "--cluster")
        if flags.role is None:
            raise RunnerError(
                f"is not set; allowed: {', '.join(_ROLES)}", path="--role", code="not-set"
            )
        several = len(jobs[flags.role])
        if flags.index is None and several > 1:
            message = f"is not set, but --cluster has {several} × {flags.role}"
            raise RunnerError(message, path="--index", code="not-set")
        return check_cluster(jobs, flags.role, flags.index or 0, "--cluster")
    text = os.environ.get(NAME, "").strip()
    if not text:
        raise RunnerError(f"no cluster is described: set --cluster or {NAME}", code="not-set")
    for name in ("role", "index"):
        if getattr(flags, name) is not None:
            message = f"has an effect only with --cluster; {NAME} names the role"
            raise RunnerError(message, path=f"--{name}", code="no-effect")
    return from_tf_config(text)


_FLAGS = (
    flag("--role", "role of this process, with --cluster", choices=_ROLES),
    flag("--index=I", "its index within its role, with --cluster", type=int),
    flag("--cluster=TEXT", "addresses of each role, as in the example above"),
)
COMMAND = Command("server", _DESCRIPTION, _FLAGS, [_EXAMPLE], main)
