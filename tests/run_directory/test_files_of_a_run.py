"""docs/run_directory.md lists what a run writes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orbit_runner.cli.main import main

PAGE = Path(__file__).parents[2] / "docs" / "run_directory.md"


def test_run_directory_page_lists_every_file_of_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    flags = ["--experiment=digits_mlp", "--train_steps=4", "--trainer.validation_interval=2"]
    flags.append("--trainer.best_checkpoint_export_subdir=best")
    flags.append("--trainer.best_checkpoint_eval_metric=accuracy")
    assert main(["run", *flags, f"--model_dir={run}"]) == 0
    capsys.readouterr()
    rows = re.findall(r"^\| (`.*?) \|", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    listed = {name.rstrip("/") for row in rows for name in re.findall(r"`([^`]+)`", row)}
    written = {path.name for path in run.iterdir() if not path.name.startswith(".")}
    assert written == listed
    inside = {re.sub(r"\d+.*", "", path.name) for path in (run / "checkpoints").iterdir()}
    assert {"ckpt-", "fingerprints.jsonl"} <= inside
