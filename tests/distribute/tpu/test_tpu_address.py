"""Names and addresses of TPUs, checked before TensorFlow starts; with real sockets."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from orbit_runner.cli.main import main
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute import tpu_address
from orbit_runner.distribute.tpu_address import (
    endpoints,
    find_tpu,
    reach_problem,
    tpu_name,
    tpu_problems,
)
from orbit_runner.jobs.preflight import check_before_start
from tests.support.problems import pairs, raises


def runtime(tpu: str, **changes: Any) -> RuntimeConfig:
    return RuntimeConfig(distribution_strategy="tpu", tpu=tpu, **changes)


def problems(tpu: str, environ: dict[str, str] | None = None, **changes: Any) -> list[Any]:
    return pairs(tpu_problems(runtime(tpu, **changes), environ or {}))


@contextlib.contextmanager
def listener(answer: bytes | None) -> Iterator[str]:
    """Listens on a port, and sends `answer` to each client, or nothing if it is None."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        held = []

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    held.append(connection)
                    if answer is not None:
                        connection.recv(100)
                        connection.sendall(answer)
                        connection.shutdown(socket.SHUT_WR)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in held:
            connection.close()


NO_CLOUD = {"GCE_METADATA_IP": "127.0.0.1:1"}
SETTINGS = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))


def test_http2_server_is_reachable() -> None:
    with listener(SETTINGS) as there:
        assert reach_problem(there) == ""
        assert problems(f"grpc://{there}") == []
        assert problems(f"grpc://{there},grpc://{there}") == []


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "it does not respond within 0.2 s"),
        (b"", "is not a gRPC server"),
        (b"\0\0\0", "is not a gRPC server"),
        (b"\0\0\0\x07\0\0\0\0\0", "is not a gRPC server"),
        (b"220 mail ready\r\n", "is not a gRPC server"),
    ],
)
def test_listener_that_is_not_a_grpc_server_is_reported(answer: bytes | None, said: str) -> None:
    start = time.monotonic()
    with listener(answer) as there:
        assert said in reach_problem(there, patience=0.2)
        assert time.monotonic() - start < 15


def test_web_server_is_reported_as_not_a_grpc_server() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    BaseHTTPRequestHandler.log_message = lambda *_: None  # type: ignore[method-assign, assignment]
    try:
        assert "is not a gRPC server" in reach_problem(f"127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_refused_connection_is_reported_immediately() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    start = time.monotonic()

    ((path, message),) = problems(f"grpc://127.0.0.1:{port}")

    assert path == "runtime.tpu"
    assert message == f"got grpc://127.0.0.1:{port}, but it cannot be reached: Connection refused"
    assert time.monotonic() - start < 15


def test_connecting_to_an_unresponsive_host_times_out() -> None:
    with (
        socket.create_server(("127.0.0.1", 0), backlog=0) as server,
        contextlib.ExitStack() as all_,
    ):
        place = server.getsockname()
        for _ in range(4):  # Once the queue is full, the kernel drops connections.
            waiting = all_.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(place)
        start = time.monotonic()

        said = reach_problem(f"127.0.0.1:{place[1]}", patience=0.2)

        assert said == "it does not respond within 0.2 s"
        assert time.monotonic() - start < 15


def test_error_names_the_first_address_that_fails() -> None:
    with listener(SETTINGS) as there, listener(b"no") as other:
        ((_, message),) = problems(f"grpc://{there},grpc://{other}")
        assert message == f"got grpc://{other}, but it is not a gRPC server"


@pytest.mark.parametrize(
    ("tpu", "said"),
    [
        (
            "",
            "is not set, none of KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS, TPU_NAME, TPU_CONFIG specifies a "
            "TPU",
        ),
        ("  ", "is not set"),
        ("grpc://", "got ':8470', expected host:port"),
        ("grpc://host:http", "got port 'http' in 'host:http'"),
        ("grpc://host:0", "got port '0'"),
        ("grpc://a host", "got 'a host:8470', expected host:port"),
        ("grpc://[::1]:8470", "does not accept IPv6 addresses"),
        ("grpc://host:8470,", "expected host:port"),
        ("10.0.0.2:8470", "not a valid TPU name; did you mean grpc://10.0.0.2:8470?"),
        ("10.0.0.2", "did you mean grpc://10.0.0.2?"),
        ("http://10.0.0.2", "not a valid TPU name"),
        ("-x", "got '-x', which is not a valid TPU name"),
    ],
)
def test_malformed_tpu_names_and_addresses_are_rejected(tpu: str, said: str) -> None:
    ((path, message),) = problems(tpu, NO_CLOUD)

    assert path == "runtime.tpu"
    assert said in message
    assert "allowed: local, the name of a TPU" in message


def test_local_tpu_and_other_strategies_are_not_checked() -> None:
    assert problems("local") == []
    assert [*tpu_problems(RuntimeConfig(tpu="grpc://"), {})] == []


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, ""),
        ({"TPU_NAME": "mine"}, "mine"),
        ({"TPU_NAME": "mine", "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS": "grpc://a:1"}, "grpc://a:1"),
        ({"TPU_CONFIG": json.dumps({"tpu_node_name": "other"})}, "other"),
        ({"TPU_CONFIG": "{"}, ""),
        ({"TPU_CONFIG": "[]"}, ""),
    ],
)
def test_empty_tpu_name_is_read_from_the_variables_of_tensorflow(
    environ: dict[str, str], expected: str
) -> None:
    assert tpu_name(runtime(""), environ) == expected
    assert tpu_name(runtime("given"), environ) == "given"


@contextlib.contextmanager
def metadata_server(attributes: dict[str, str]) -> Iterator[str]:
    """Serves attributes of a machine as the metadata server of Google Cloud does."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.removeprefix("/computeMetadata/v1/instance/attributes/")
            known = name in attributes and self.headers["Metadata-Flavor"] == "Google"
            self.send_response(200 if known else 404)
            self.end_headers()
            self.wfile.write(attributes.get(name, "").encode() if known else b"<html>")

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize(
    ("device", "environ", "expected"),
    [
        ("", {}, ""),
        ("accel0", {}, "local"),
        ("vfio/0", {}, "local"),
        ("vfio/vfio", {}, ""),
        ("accel0", {"TPU_NAME": "mine"}, "mine"),
    ],
)
def test_local_tpu_is_detected_by_its_device_files(
    device: str, environ: dict[str, str], expected: str, tmp_path: Path
) -> None:
    if device:
        (tmp_path / device).parent.mkdir(exist_ok=True)
        (tmp_path / device).touch()

    config = RuntimeConfig(distribution_strategy="tpu")
    assert find_tpu(config, NO_CLOUD | environ, tmp_path) == expected
    assert find_tpu(runtime("given"), NO_CLOUD | environ, tmp_path) == "given"


@pytest.mark.parametrize(
    ("attributes", "expected"), [({"accelerator-type": "v3-8"}, "local"), ({"name": "x"}, "")]
)
def test_local_tpu_is_detected_by_the_metadata_server(
    attributes: dict[str, str], expected: str, tmp_path: Path
) -> None:
    with metadata_server(attributes) as there:
        assert find_tpu(runtime(""), {"GCE_METADATA_HOST": there}, tmp_path) == expected
        assert [path for path, _ in problems("", {"GCE_METADATA_HOST": there})] == (
            [] if expected else ["runtime.tpu"]
        )


@pytest.mark.parametrize("command", ["show", "validate"])
@pytest.mark.parametrize(
    "flags", [[], ["--tpu=grpc://10.0.0.2:8470"], ["--runtime.tpu=grpc://10.0.0.2:8470"]]
)
def test_tpu_config_can_be_shown_and_validated_without_an_address(
    command: str, flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tpu.yaml"
    file.write_text("runtime: {distribution_strategy: tpu}\n")
    given = [str(file)] if command == "validate" else [f"--config_file={file}"]

    assert main([command, "--experiment=digits", *given, *flags]) == 0

    shown = "  tpu: grpc://10.0.0.2:8470\n" if flags else "  tpu: null\n"
    expected = f"{file}: ok\n" if command == "validate" else shown
    assert expected in capsys.readouterr().out


def test_default_port_is_that_of_tensorflow() -> None:
    assert endpoints("grpc://a,grpc://b:1, c:2") == ["a:8470", "b:1", "c:2"]
    assert endpoints("name") == endpoints("local") == []


def test_tpu_name_requires_zone_and_project_outside_google_cloud() -> None:
    with listener(b"") as there:
        inside, outside = {"GCE_METADATA_IP": there}, {"GCE_METADATA_IP": "127.0.0.1:1"}
        assert problems("mine", inside) == []
        assert problems("mine", outside, tpu_zone="z", tpu_project="p") == []
        assert [path for path, _ in problems("mine", outside, tpu_zone="z")] == [
            "runtime.tpu_project"
        ]
        ((path, message),) = problems("mine", outside)
    assert path == "runtime.tpu_zone"
    assert "set runtime.tpu_zone and runtime.tpu_project" in message


def test_missing_package_for_tpu_name_lookup_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "oauth2client", None)
    monkeypatch.setattr(tpu_address.importlib.util, "find_spec", lambda name: None)  # type: ignore[attr-defined]

    ((path, message),) = problems("mine")

    assert (path, "requires the package googleapiclient" in message) == ("runtime.tpu", True)


def test_preflight_error_shows_where_the_tpu_setting_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in tpu_address.VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:1")
    flags = (("--distribution_strategy", "runtime.distribution_strategy", "tpu"),
             ("--tpu", "runtime.tpu", "''"))  # fmt: skip
    resolved = resolve(Request(experiment="digits", flags=flags))

    with raises("not-set", "runtime.tpu") as caught:
        check_before_start(resolved, "train", tmp_path)
    assert caught.value.exit_code == 2


def test_unreachable_tpu_ends_the_command_before_tensorflow_is_imported(tmp_path: Path) -> None:
    (tmp_path / "tensorflow.py").write_text("raise SystemExit('tensorflow was imported')\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    with socket.create_server(("127.0.0.1", 0)) as server:
        tpu = f"grpc://127.0.0.1:{server.getsockname()[1]}"

    done = subprocess.run(
        [sys.executable, "-m", "orbit_runner", "run", "--experiment=digits",
         "--distribution_strategy=tpu", f"--tpu={tpu}"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": path.rstrip(os.pathsep)},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip

    assert done.returncode == 2
    assert f"runtime.tpu — --tpu\n    got {tpu}, but it cannot be reached" in done.stderr
    assert not (tmp_path / "runs").exists()
