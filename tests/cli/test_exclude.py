"""`train_data.exclude` on the command line: `batch`, errors, and resumed runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

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
def test_model_garden_is_refused_with_the_reason(tmp_path):
    arguments = ["--experiment=official/resnet_imagenet", f"--model_dir={tmp_path / 'a'}"]

    fails(["run", *arguments, f"{EXCLUDE}=[3]"], "unknown-setting", "task.train_data.exclude")


@pytest.fixture(scope="module")
def folder_with_run(tmp_path_factory):
    """A directory with a short run `a` that excludes the examples of `ids.txt`."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("ids.txt").write_text("17\n4\n")
        assert main(["run", *_RUN, "--train_steps=2", f"{EXCLUDE}=ids.txt"]) == 0
    return folder


_RUN = ("--experiment=digits_mlp", "--model_dir=a", "--mode=train", "--quiet")


@pytest.fixture
def folder(folder_with_run, tmp_path, monkeypatch):
    """A copy that is the working directory."""
    copy = Path(shutil.copytree(folder_with_run, tmp_path / "copy"))
    monkeypatch.chdir(copy)
    monkeypatch.setenv("COLUMNS", "200")
    return copy


@pytest.mark.slow
def test_resume_with_the_same_ids_in_another_form(folder):
    assert main(["run", *_RUN, "--train_steps=3", f"{EXCLUDE}=['4', 17, 17]"]) == 0

    attempt = json.loads((folder / "a/run.json").read_text())["attempts"][-1]
    assert attempt["inexact"] == []


@pytest.mark.slow
def test_changed_file_is_refused_and_a_comment_is_not(folder):
    (folder / "ids.txt").write_text("# checked\n17\n4\n")
    assert main(["run", *_RUN, "--train_steps=3", f"{EXCLUDE}=ids.txt"]) == 0

    (folder / "ids.txt").write_text("17\n5\n")
    fails(["run", *_RUN, "--train_steps=4", f"{EXCLUDE}=ids.txt"], "data-changed")


@pytest.mark.slow
def test_run_is_read_without_its_file(folder):
    (folder / "ids.txt").unlink()

    assert main(["verify", "a"]) == 0
    fails(["batch", "a", "--example=17"], "unreadable-file")
