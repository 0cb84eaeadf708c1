"""Programs of XLA that are kept for the next process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.determinism.numerics_record import changes, describe_numerics
from orbit_runner.distribute.tf_environment import prepare_environment, variables
from orbit_runner.errors import SettingError


def test_nothing_is_kept_unasked() -> None:
    assert "TF_XLA_FLAGS" not in dict(variables(RuntimeConfig()))


def test_other_flags_stay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TF_XLA_FLAGS", "--tf_xla_clustering_debug --tf_xla_persistent_cache_x=1")
    flags = dict(variables(RuntimeConfig(xla_cache_dir=str(tmp_path))))["TF_XLA_FLAGS"].split()
    assert flags[0] == "--tf_xla_clustering_debug"
    assert flags[1].startswith(f"--tf_xla_persistent_cache_directory={tmp_path}/tensorflow-")
    assert len(flags) == 2


def test_the_record_of_a_run_does_not_name_the_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TF_XLA_FLAGS", "")
    before = describe_numerics(RuntimeConfig())
    runtime = RuntimeConfig(xla_cache_dir=str(tmp_path))
    monkeypatch.setenv("TF_XLA_FLAGS", dict(variables(runtime))["TF_XLA_FLAGS"])
    assert not changes(before, describe_numerics(runtime))
    monkeypatch.setenv("TF_XLA_FLAGS", "--tf_xla_enable_lazy_compilation=false")
    assert changes(before, describe_numerics(runtime))


@pytest.mark.slow
def test_a_second_run_finds_what_the_first_compiled(tmp_path: Path) -> None:
    cache, weights = tmp_path / "cache", []
    for run in ("a", "b"):
        flags = [
            "--experiment=digits_mlp",
            "--config_file=configs/trainer/smoke.yaml",
            "--runtime.enable_xla=true",
            f"--runtime.xla_cache_dir={cache}",
            "--mode=train",
            f"--model_dir={tmp_path / run}",
        ]
        done = subprocess.run(
            [sys.executable, "-m", "orbit_runner", *flags],
            capture_output=True, text=True, check=True, env={**os.environ, "TF_XLA_FLAGS": ""},
        )  # fmt: skip
        weights.append(next(line for line in done.stdout.splitlines() if "sha256" in line))
        files = {path: path.stat().st_mtime_ns for path in cache.rglob("*.pb")}
        if run == "a":
            # One program, however long the loops were.
            assert len(files) == 1
            kept = files
    assert files == kept
    assert weights[0] == weights[1]


def test_a_place_that_is_no_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    runtime = RuntimeConfig(xla_cache_dir=str(tmp_path / "file"))
    with pytest.raises(SettingError, match=r"cannot make .*: Not a directory") as caught:
        dict(variables(runtime))
    assert caught.value.path == "runtime.xla_cache_dir"


def test_the_environment_is_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TF_XLA_FLAGS", "")
    prepare_environment(RuntimeConfig(xla_cache_dir=str(tmp_path)))
    assert str(tmp_path) in os.environ["TF_XLA_FLAGS"]
