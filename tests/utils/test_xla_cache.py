"""XLA programs that are cached for the next process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.determinism.numerics_record import describe_changes, describe_numerics
from orbit_runner.distribute.tf_environment import required_variables
from orbit_runner.errors import SettingError


def test_other_xla_flags_are_preserved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TF_XLA_FLAGS", "--tf_xla_clustering_debug --tf_xla_persistent_cache_x=1")
    flags = dict(required_variables(RuntimeConfig(xla_cache_dir=str(tmp_path))))[
        "TF_XLA_FLAGS"
    ].split()
    assert flags[0] == "--tf_xla_clustering_debug"
    assert flags[1].startswith(f"--tf_xla_persistent_cache_directory={tmp_path}/tensorflow-")
    assert len(flags) == 2


def test_cache_directory_does_not_count_as_a_numerics_change(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TF_XLA_FLAGS", "")
    before = describe_numerics(RuntimeConfig())
    runtime = RuntimeConfig(xla_cache_dir=str(tmp_path))
    monkeypatch.setenv("TF_XLA_FLAGS", dict(required_variables(runtime))["TF_XLA_FLAGS"])
    assert not describe_changes(before, describe_numerics(runtime))
    monkeypatch.setenv("TF_XLA_FLAGS", "--tf_xla_enable_lazy_compilation=false")
    assert describe_changes(before, describe_numerics(runtime))


@pytest.mark.slow
def test_second_run_reuses_the_programs_compiled_by_the_first(tmp_path: Path) -> None:
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
        assert "Compiled cluster" not in done.stderr
        weights.append(next(line for line in done.stdout.splitlines() if "sha256" in line))
        files = {path: path.stat().st_mtime_ns for path in cache.rglob("*.pb")}
        if run == "a":
            # One program, whatever the lengths of the loops, and the empty one that is compiled
            # first so that TensorFlow's notice is not printed.
            assert len(files) == 2
            kept = files
    assert files == kept
    assert weights[0] == weights[1]


def test_cache_path_that_is_not_a_directory_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    runtime = RuntimeConfig(xla_cache_dir=str(tmp_path / "file"))
    with pytest.raises(SettingError, match=r"cannot create .*: Not a directory") as caught:
        dict(required_variables(runtime))
    assert caught.value.path == "runtime.xla_cache_dir"
