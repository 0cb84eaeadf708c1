"""`train_data.exclude` on the command line: `batch`, errors, and resumed runs."""

from __future__ import annotations

import json

import pytest

from orbit_runner.cli.main import main
from tests.support.problems import fails, output_of

EXCLUDE = "--task.train_data.exclude"


def test_batch_leaves_excluded_examples_out():
    all_rows = json.loads(output_of(["batch", "digits", "--step=3", "--json"]))["rows"]
    ids = [row["example"] for row in all_rows[4:6]]
    flag = f"{EXCLUDE}={ids}"

    rows = json.loads(output_of(["batch", "digits", "--step=3", "--json", flag]))["rows"]
    seen = output_of(["batch", "digits", f"--example={ids[0]}", flag])
    values = output_of(["batch", "digits", f"--example={ids[0]}", "--json", flag])
    other = output_of(["batch", "digits", f"--example={rows[4]['example']}", "--json", flag])

    remaining_ids = [row["example"] for row in all_rows if row["example"] not in ids]
    assert [row["example"] for row in rows][: len(remaining_ids)] == remaining_ids
    sentence = "in no step: task.train_data.exclude leaves it out"
    assert seen == f"example {ids[0]:,} of digits\n{sentence}\n"
    excluded = json.loads(values)
    assert (excluded["example"], excluded["excluded"]) == (ids[0], True)
    assert excluded["occurrences"] == []
    assert "excluded" not in json.loads(other)
    assert json.loads(other)["occurrences"][0]["step"] == 3


@pytest.mark.slow
def test_resume_needs_the_same_ids(tmp_path):
    run = ["run", "--experiment=digits_mlp", f"--model_dir={tmp_path}", "--mode=train", "--quiet"]
    assert main([*run, "--train_steps=2", f"{EXCLUDE}=[17, 4]"]) == 0
    assert main([*run, "--train_steps=3", f"{EXCLUDE}=[17, 4]"]) == 0

    attempt = json.loads((tmp_path / "run.json").read_text())["attempts"][-1]
    assert attempt["inexact"] == []
    fails([*run, "--train_steps=4", f"{EXCLUDE}=[4, 18]"], "other-config")
