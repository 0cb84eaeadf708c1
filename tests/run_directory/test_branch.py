"""`branch.json`: where runs branched off, and what two of a family have in common."""

import json

import pytest

from orbit_runner.config.serialize import Difference
from orbit_runner.run_directory.branch import (
    Branch,
    ancestry,
    last_common_step,
    read_branch,
    write_branch,
)


def _branch(run, parent, step, *changes):
    run.mkdir(parents=True)
    write_branch(
        run,
        Branch(
            parent=parent, step=step, weights="aa", state="bb", configs=("cc",), changes=changes
        ),
    )
    return run


@pytest.fixture
def family(tmp_path):
    """Run a; b and c continue it at steps 40 and 20; d continues b at step 50."""
    (tmp_path / "a").mkdir()
    _branch(tmp_path / "b", tmp_path / "a", 40)
    _branch(tmp_path / "c", tmp_path / "a", 20)
    _branch(tmp_path / "d", tmp_path / "b", 50)
    return tmp_path


def test_record_is_read_as_it_was_written(tmp_path):
    change = Difference("runtime.seed", "17", "3")
    run = _branch(tmp_path / "runs/b", tmp_path / "elsewhere/a", 40, change)
    record = read_branch(run)
    assert (record.parent, record.step) == (tmp_path / "elsewhere/a", 40)
    assert (record.changes, record.values()) == ((change,), {"runtime.seed": 3})
    assert json.loads((run / "branch.json").read_text())["parent"] == "../../elsewhere/a"


def test_parent_is_found_after_both_were_moved(family):
    moved = family.rename(family.with_name("moved"))
    assert [*ancestry(moved / "d")] == [moved / "d", moved / "b", moved / "a"]


@pytest.mark.parametrize(
    ("left", "right", "step"),
    [
        ("a", "b", 40), ("b", "a", 40), ("b", "c", 20), ("a", "d", 40), ("b", "d", 50),
        ("c", "d", 20), ("a", "x", None), ("a", "a", None),
    ],
)  # fmt: skip
def test_last_common_step_of_two_runs(left, right, step, family):
    (family / "x").mkdir()
    assert last_common_step(ancestry(family / left), ancestry(family / right)) == step


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 1}', '{"format": 2, "step": 1}'])
def test_damaged_record_counts_as_no_branch(text, tmp_path):
    (tmp_path / "branch.json").write_text(text)
    assert read_branch(tmp_path) is None
    assert ancestry(tmp_path) == {tmp_path: None}


def test_runs_that_name_each_other_as_parents_do_not_hang(tmp_path):
    _branch(tmp_path / "a", tmp_path / "b", 10)
    _branch(tmp_path / "b", tmp_path / "a", 20)
    assert ancestry(tmp_path / "a") == {tmp_path / "a": None, tmp_path / "b": 10}
