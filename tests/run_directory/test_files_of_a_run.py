"""docs/run_directory.md lists what a run writes."""

import json
import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "run_directory.md"


def test_run_directory_page_lists_every_file_of_a_run(finished_run):
    # The directory is in no git repository, so there is no patch.
    table = PAGE.read_text(encoding="utf-8").partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", table, flags=re.MULTILINE)
    listed = {name.rstrip("/") for row in rows for name in re.findall(r"`([^`]+)`", row)}
    written = {path.name for path in finished_run.iterdir() if not path.name.startswith(".")}
    others = {"branch.json", "code.patch", "trackers.json", "wandb", "evaluations"}
    assert written | others == listed
    inside = {re.sub(r"\d+.*", "", path.name) for path in (finished_run / "checkpoints").iterdir()}
    assert {"ckpt-", "fingerprints.jsonl"} <= inside
    page = PAGE.read_text(encoding="utf-8").partition("\n## The record of a checkpoint\n")[2]
    record = json.loads((finished_run / "checkpoints" / "ckpt-30.json").read_text())
    keys = re.findall(r"^\| (`.*?) \|", page.partition("\n## ")[0], flags=re.MULTILINE)
    assert {name for row in keys for name in re.findall(r"`([^`]+)`", row)} - {"key"} == {*record}
