"""`runner server`: servers as processes, and clients that use them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orbit_runner.launch.members import free_ports

COMMAND = [sys.executable, "-m", "orbit_runner", "server"]
Server = Callable[..., "subprocess.Popen[str]"]


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "no cluster is described: set --cluster, TF_CONFIG, or runtime.cluster"),
        (["--role=chief"], "invalid choice: 'chief'"),
        (["--cluster=worker=a:1;ps=b:1"], "--role: is not set"),
        (["--role=worker", "--cluster=worker=a:1,c:1;ps=b:1"], "--index: is not set"),
        (["--role=worker", "--index=2", "--cluster=worker=a:1,c:1;ps=b:1"], "allowed: 0 to 1"),
        (["--role=worker", "--index=0", "--cluster=worker=a;ps=b:1"], "expected host:port"),
        (["--role=worker", "--index=0", "--cluster=worker"], "--cluster: got 'worker', expected"),
        (["--role=data"], "--port and --host: got"),
        (["--role=data", "--port=99999"], "allowed: 1 to 65535"),
    ],
)  # fmt: skip
def test_invalid_server_arguments_are_rejected(
    arguments: list[str],
    expected: str,
    tmp_path: Path,
    without_tensorflow: dict[str, str],
    refused: Callable[..., str],
) -> None:
    assert expected in refused(tmp_path, "server", *arguments, env=without_tensorflow)


def test_server_rejects_the_chief_role(
    tmp_path: Path, without_tensorflow: dict[str, str], refused: Callable[..., str]
) -> None:
    text = '{"cluster": {"chief": ["a:1"], "ps": ["b:1"]}, "task": {"type": "chief", "index": 0}}'
    said = refused(tmp_path, "server", env={**without_tensorflow, "TF_CONFIG": text})
    assert said.startswith("runner: TF_CONFIG: this process is chief 0, expected a worker or ps;")


@pytest.mark.parametrize(
    "flags", [["--role=worker", "--cluster=worker=127.0.0.1:{0};ps=127.0.0.1:1"],
              ["--role=data", "--port={0}"]]
)  # fmt: skip
def test_server_rejects_a_port_in_use(
    flags: list[str],
    tmp_path: Path,
    without_tensorflow: dict[str, str],
    refused: Callable[..., str],
) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        given = [flag.format(port) for flag in flags]
        said = refused(tmp_path, "server", *given, env=without_tensorflow)
    assert said.endswith(f": port {port} of 127.0.0.1:{port} is in use by another process\n")
    assert len(said.splitlines()) == 1


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
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
    assert process.stdout is not None
    return process.stdout.readline()


def client(text: str) -> str:
    command = [sys.executable, "-c", f"import tensorflow as tf\n{text}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_remote_client_uses_worker_and_parameter_server(server: Server) -> None:
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
    found = client(
        f"""
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
    assert "/job:ps/replica:0/task:0" in found
    assert found.endswith(" 3.0\n")
    for process, number in zip(pair, (signal.SIGTERM, signal.SIGINT), strict=True):
        process.send_signal(number)
        _, err = process.communicate(timeout=600)
        assert process.returncode == 128 + number
        assert err.splitlines()[-1].endswith(f" 0: {number.name}: exiting")


@pytest.mark.slow
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_data_server_serves_batches_and_exits_on_sigterm(server: Server, host: str) -> None:
    (port,) = free_ports(1)
    process = server("--role=data", f"--port={port}", f"--host={host}")
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    assert ready(process) == f"data serves at {address}\n"
    text = f"""
data = tf.data.Dataset.range(5).apply(tf.data.experimental.service.distribute(
    processing_mode="parallel_epochs", service="grpc://{address}"))
print([int(n) for n in data])
"""
    assert client(text) == "[0, 1, 2, 3, 4]\n"
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 143
    assert err.splitlines()[-1] == "data: SIGTERM: exiting"
