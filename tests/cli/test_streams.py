"""Standard streams that are closed, full, not read to the end, or not UTF-8."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.run_directories import write_run

RUNNER = f"{sys.executable} -m orbit_runner"
SMOKE = Path("configs/trainer/smoke.yaml").resolve()
RUN = f"{RUNNER} --experiment=digits --config_file={SMOKE} --progress=plain --model_dir=run"
needs_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")


def shell(command: str, folder: Path, **environ: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=folder,
        env={**os.environ, **environ},
        capture_output=True,
        timeout=600,
        check=False,
    )


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        (f"{RUNNER} list >&-", 0, b""),
        (f"{RUNNER} list 2>&-", 0, b""),
        (f"{RUNNER} list >&- 2>&- <&-", 0, b""),
        (f"{RUNNER} list | head -1", 0, b""),
        (f"{RUNNER} list 2>/dev/full", 0, b""),
        (f"{RUNNER} show --nope 2>&-", 2, b""),
        (f"{RUNNER} show --nope 2>/dev/full", 2, b""),
        (f"{RUNNER} list >/dev/full", 6, b"written to standard output: No space left"),
        (f"{RUNNER} --help >/dev/full", 6, b"written to standard output: No space left"),
        (f"{RUNNER} show --help >/dev/full", 6, b"written to standard output: No space left"),
    ],
)
@needs_full
def test_exit_code_is_correct_when_streams_are_closed_or_full(
    command: str, code: int, message: bytes, tmp_path: Path
) -> None:
    done = shell(command, tmp_path)

    assert done.returncode == code
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == (2 if code == 6 else bool(message))


@needs_full
def test_result_that_cannot_be_written_is_reported_whatever_the_exit_code(tmp_path: Path) -> None:
    for name, seed in (("a", "1"), ("b", "2")):
        write_run(tmp_path / name, flags=[("runtime.seed", seed)], weights={100: seed * 64})

    done = shell(f"{RUNNER} why a b --recorded >/dev/full", tmp_path)

    assert done.returncode == 4
    assert b"written to standard output: No space left" in done.stderr


@pytest.mark.sample(1)
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_text_is_written_in_the_encoding_of_the_stream(encoding: str, tmp_path: Path) -> None:
    done = shell(f"{RUNNER} list", tmp_path, PYTHONIOENCODING=encoding)

    assert done.returncode == 0, done.stderr
    expected = r"32\xd732" if encoding == "ascii" else "32×32"
    assert expected in done.stdout.decode(encoding)


@pytest.mark.sample(1)
@pytest.mark.parametrize("command", ["show --experiment=digits --config_file=a", "list --json"])
def test_yaml_and_json_are_utf8_in_every_locale(command: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("task: {train_data: {data_dir: dïgits}}", encoding="utf-8")
    posix = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}

    done = shell(f"{RUNNER} {command}", tmp_path, **posix)

    assert done.returncode == 0, done.stderr
    found = yaml.safe_load(done.stdout.decode("utf-8"))
    if "show" in command:
        assert found["task"]["train_data"]["data_dir"] == "dïgits"
    else:
        assert "32×32" in found["models of image_classification"]["resnet_cifar"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("redirection", "code"), [("", 0), (">/dev/full", 6), ("2>&1 | head -1", 0), ("2>&-", 0)]
)
@needs_full
def test_run_is_recorded_as_done_even_if_output_streams_fail(
    redirection: str, code: int, tmp_path: Path
) -> None:
    done = shell(f"{RUN} {redirection}", tmp_path, PYTHONIOENCODING="ascii")

    assert done.returncode == code, done.stderr
    assert b"Traceback" not in done.stderr
    (attempt,) = json.loads((tmp_path / "run/run.json").read_text())["attempts"]
    assert attempt["outcome"] == "done"
    if redirection in ("", "2>&-"):
        assert f"sha256 {attempt['weights']}" in done.stdout.decode("ascii")
