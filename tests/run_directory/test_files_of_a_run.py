"""docs/run_directory.md lists what a run writes."""

import json
import re
from pathlib import Path

import pytest

from orbit_runner.cli.main import main

PAGE = Path(__file__).parents[2] / "docs" / "run_directory.md"


@pytest.mark.slow
def test_run_directory_page_lists_every_file_of_a_run(here, capsys):
    # The directory is in no git repository, so there is no patch.
    run = here / "run"
    flags = ["--experiment=digits_mlp", "--train_steps=4", "--trainer.validation_interval=2"]
    flags.append("--trainer.best_checkpoint_export_subdir=best")
    flags.append("--trainer.best_checkpoint_eval_metric=accuracy")
    assert main(["run", *flags, f"--model_dir={run}"]) == 0
    capsys.readouterr()
    table = PAGE.read_text(encoding="utf-8").partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", table, flags=re.MULTILINE)
    listed = {name.rstrip("/") for row in rows for name in re.findall(r"`([^`]+)`", row)}
    written = {path.name for path in run.iterdir() if not path.name.startswith(".")}
    others = {"branch.json", "code.patch", "trackers.json", "wandb", "evaluations"}
    assert written | others == listed
    inside = {re.sub(r"\d+.*", "", path.name) for path in (run / "checkpoints").iterdir()}
    assert {"ckpt-", "fingerprints.jsonl"} <= inside
    page = PAGE.read_text(encoding="utf-8").partition("\n## The record of a checkpoint\n")[2]
    record = json.loads((run / "checkpoints" / "ckpt-4.json").read_text())
    keys = re.findall(r"^\| (`.*?) \|", page.partition("\n## ")[0], flags=re.MULTILINE)
    assert {name for row in keys for name in re.findall(r"`([^`]+)`", row)} - {"key"} == {*record}
