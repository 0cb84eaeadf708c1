"""Names and addresses of TPUs, checked before TensorFlow starts."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orbit_runner.cli.main import main
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute import tpu_address
from orbit_runner.distribute.cluster.addresses import Liveness
from orbit_runner.distribute.tpu_address import ALLOWED, endpoints, find_tpu, tpu_problems
from orbit_runner.jobs.preflight import check_before_start
from tests.support.problems import pairs, raises


def runtime(tpu: str, **changes: Any) -> RuntimeConfig:
    return RuntimeConfig(distribution_strategy="tpu", tpu=tpu, **changes)


def problems(tpu: str, environ: dict[str, str] | None = None, **changes: Any) -> list[Any]:
    return pairs(tpu_problems(runtime(tpu, **changes), environ or {}))


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (Liveness.ALIVE, None),
        (Liveness.GONE, "got grpc://b:2, but there is no TPU: nothing is listening\n"),
        (Liveness.SILENT, "got grpc://b:2, but there is no TPU: no response\n"),
    ],
)
def test_error_names_the_first_address_that_does_not_answer(
    second: Liveness, said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = {"a:1": Liveness.ALIVE, "b:2": second, "c:3": second}
    monkeypatch.setattr(tpu_address, "probe", lambda address, _: states[address])

    found = problems("grpc://a:1,grpc://b:2,grpc://c:3")

    assert found == ([] if said is None else [("runtime.tpu", f"{said}{ALLOWED}")])


@pytest.mark.parametrize(
    ("tpu", "said"),
    [
        ("", "is not set, KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS and TPU_NAME are not set either"),
        ("  ", "is not set"),
        ("grpc://", "got ':8470', expected host:port"),
        ("grpc://host:http", "got port 'http' in 'host:http'"),
        ("grpc://host:0", "got port '0'"),
        ("grpc://a host", "got 'a host:8470', expected host:port"),
    ],
)
def test_malformed_tpu_addresses_are_rejected(tpu: str, said: str) -> None:
    ((path, message),) = problems(tpu)

    assert path == "runtime.tpu"
    assert said in message
    assert "allowed: local, the name of a TPU" in message


def test_local_tpu_and_other_strategies_are_not_checked() -> None:
    assert problems("local") == []
    assert [*tpu_problems(RuntimeConfig(tpu="grpc://"), {})] == []


@pytest.mark.parametrize(
    ("device", "environ", "expected"),
    [
        ("", {}, ""),
        ("accel0", {}, "local"),
        ("vfio/0", {}, "local"),
        ("vfio/vfio", {}, ""),
        ("accel0", {"TPU_NAME": "mine"}, "mine"),
        ("", {"TPU_NAME": "mine", "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS": "grpc://a:1"}, "grpc://a:1"),
    ],
)
def test_tpu_is_that_of_the_setting_the_environment_or_the_machine(
    device: str, environ: dict[str, str], expected: str, tmp_path: Path
) -> None:
    if device:
        (tmp_path / device).parent.mkdir(exist_ok=True)
        (tmp_path / device).touch()

    config = RuntimeConfig(distribution_strategy="tpu")
    assert find_tpu(config, environ, tmp_path) == expected
    assert find_tpu(runtime("given"), environ, tmp_path) == "given"


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


def test_preflight_error_shows_where_the_tpu_setting_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in tpu_address.VARIABLES:
        monkeypatch.delenv(variable, raising=False)
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
    assert f"runtime.tpu — --tpu\n    got {tpu}, but there is no TPU" in done.stderr
    assert not (tmp_path / "runs").exists()
