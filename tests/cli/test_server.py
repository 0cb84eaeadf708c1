"""`runner server`: servers as processes, and clients that use them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.clusters.members import free_ports
from tests.support.problems import error_of, fails
from tests.support.processes import printed_by

COMMAND = [sys.executable, "-m", "orbit_runner", "server"]
Server = Callable[..., "subprocess.Popen[str]"]


@pytest.mark.usefixtures("no_tensorflow")
def test_server_rejects_the_chief_role(monkeypatch):
    text = '{"cluster": {"chief": ["a:1"], "ps": ["b:1"]}, "task": {"type": "chief", "index": 0}}'
    monkeypatch.setenv("TF_CONFIG", text)
    fails(["server"], "bad-cluster", "TF_CONFIG")
    fails(["server", "--role=ps"], "no-effect", "--role")


@pytest.mark.usefixtures("no_tensorflow")
def test_server_rejects_a_port_in_use():
    with socket.create_server(("", 0)) as listener:
        port = listener.getsockname()[1]
        cluster = f"worker=127.0.0.1:{port};ps=127.0.0.1:1"
        error = error_of(["server", "--role=worker", f"--cluster={cluster}"])
    assert str(error).endswith(f": port {port} of 127.0.0.1:{port} is in use by another process")


@pytest.fixture
def server(tmp_path):
    """Starts servers, and ends them."""
    started: list[subprocess.Popen[str]] = []

    def start(*flags: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        started.append(
            subprocess.Popen(
                [*COMMAND, *flags],
                cwd=tmp_path,
                env={**os.environ, **(env or {})},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def ready(process: subprocess.Popen[str]) -> str:
    return process.stdout.readline()


@pytest.mark.slow
def test_remote_client_uses_worker_and_parameter_server(server):
    worker, ps = (f"127.0.0.1:{port}" for port in free_ports(2))
    cluster = f"worker={worker};ps={ps}"
    config = (
        f'{{"cluster": {{"worker": ["{worker}"], "ps": ["{ps}"], "evaluator": ["127.0.0.1:1"]}}, '
        '"task": {"type": "ps", "index": 0}}'
    )
    pair = [server("--role=worker", "--index=0", f"--cluster={cluster}"),
            server(env={"TF_CONFIG": config})]  # fmt: skip
    assert ready(pair[0]) == f"worker 0 serves at {worker}\n"
    assert ready(pair[1]) == f"ps 0 serves at {ps}\n"
    (line,) = printed_by(
        f"""
import tensorflow as tf
spec = tf.train.ClusterSpec({{"worker": ["{worker}"], "ps": ["{ps}"]}})
resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(spec, rpc_layer="grpc")
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    variable = tf.Variable(1.0)
coordinator.schedule(tf.function(lambda: variable.assign_add(2.0)))
coordinator.join()
print(variable.device, variable.numpy())
"""
    )
    assert "/job:ps/replica:0/task:0" in line
    assert line.endswith(" 3.0")
    for process, number in zip(pair, (signal.SIGTERM, signal.SIGINT), strict=True):
        process.send_signal(number)
        _, err = process.communicate(timeout=600)
        assert process.returncode == 128 + number
        assert err.splitlines()[-1].endswith(f" 0: {number.name}: exiting")
