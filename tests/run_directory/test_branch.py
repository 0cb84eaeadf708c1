"""`branch.json`: where a run branched off."""

import json

import pytest

from orbit_runner.config.serialize import Difference
from orbit_runner.run_directory.branch import Branch, read_branch, write_branch


def _branch(run, parent, step, *changes):
    run.mkdir(parents=True)
    write_branch(
        run,
        Branch(
            parent=parent, step=step, weights="aa", state="bb", configs=("cc",), changes=changes
        ),
    )
    return run


def test_record_is_read_as_it_was_written(tmp_path):
    change = Difference("runtime.seed", "17", "3")
    run = _branch(tmp_path / "runs/b", tmp_path / "elsewhere/a", 40, change)
    record = read_branch(run)
    assert (record.parent, record.step) == (tmp_path / "elsewhere/a", 40)
    assert (record.changes, record.values()) == ((change,), {"runtime.seed": 3})
    assert json.loads((run / "branch.json").read_text())["parent"] == "../../elsewhere/a"


def test_parent_is_found_after_both_were_moved(tmp_path):
    _branch(tmp_path / "runs/b", tmp_path / "runs/a", 40)
    moved = (tmp_path / "runs").rename(tmp_path / "moved")
    assert read_branch(moved / "b").parent == moved / "a"


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 1}', '{"format": 2, "step": 1}'])
def test_damaged_record_counts_as_no_branch(text, tmp_path):
    (tmp_path / "branch.json").write_text(text)
    assert read_branch(tmp_path) is None
