"""A run directory of version 0.1.0, which every later version has to read.

It was made by `runner --experiment=digits_mlp` with four hidden units, an average of the weights
and a best checkpoint; event files are left out. Never regenerate it.
"""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from orbit_runner.checkpoint.directory import CheckpointFolder
from orbit_runner.cli.main import main
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.run_directory.config import is_made_with

KEPT = Path(__file__).parent / "kept_runs" / "0.1.0"
WEIGHTS = "61472f91e6c530577f6c0d61cc997f93b9194df36dc8b700297217a255b3c827"


def test_kept_run_is_intact(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(KEPT), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    names = [one["name"] for one in found["checkpoints"]]
    assert names == ["checkpoints/ckpt-10", "checkpoints/ckpt-20", "best/best-20"]
    assert found["checkpoints"][1]["weights"] == WEIGHTS


def test_config_of_the_kept_run_loads(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", f"--experiment={KEPT / 'config.yaml'}"]) == 0
    assert "hidden_units: [4]" in capsys.readouterr().out


@pytest.mark.parametrize("step", [10, 20])
def test_checkpoints_of_the_kept_run_match_its_config(step: int) -> None:
    record = CheckpointFolder(KEPT / "checkpoints").record(step)
    config = resolve(Request(experiment=str(KEPT / "config.yaml"))).config
    assert record is not None
    assert is_made_with(KEPT, record.config, config)


@pytest.mark.slow
def test_kept_run_resumes(
    cli: Callable[..., "subprocess.CompletedProcess[str]"],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = shutil.copytree(KEPT, tmp_path / "a")
    done = cli(f"--experiment={run / 'config.yaml'}", "--train_steps=30", "--model_dir=a", "--json")
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr
    assert "restored step 20" in done.stderr
    results = json.loads(done.stdout)
    assert results["step"] == 30
    # On another processor the last bits may differ, and the run says so.
    allowed = "it was resumed at step 20 on another machine or installation"
    assert [reason for reason in results["inexact"] if reason != allowed] == []
    # It verifies even after the later version has rewritten `config.yaml`.
    assert main(["verify", str(run)]) == 0
    assert "ckpt-30" in capsys.readouterr().out
