"""Branches in `runner runs`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orbit_runner.config.serialize import Difference
from orbit_runner.run_directory.branch import Branch, write_branch
from tests.support.problems import output_of
from tests.support.run_directories import write_run


def _branch(run: Path, parent: Path, step: int, **values: str) -> None:
    changes = tuple(Difference(f"trainer.{name}", "1", text) for name, text in values.items())
    record = Branch(parent=parent, step=step, weights="", state="", configs=(), changes=changes)
    write_branch(run, record)


@pytest.fixture
def runs(here, monkeypatch):
    """Run a, two branches of it, b and d, and c, a branch of b. Run e is alone."""
    monkeypatch.setenv("COLUMNS", "160")
    root = here / "runs"
    for name in "abcde":
        write_run(root / name)
    _branch(root / "b", root / "a", 200, seed="3")
    _branch(root / "c", root / "b", 250)
    _branch(root / "d", root / "a", 120)
    return root


def test_branches_can_be_selected_by_their_parent(runs):
    arguments = ["--where=parent == 'runs/a' and branch_step > 150", "--columns=run,branch_step"]
    assert output_of(["runs", *arguments]).splitlines()[1].split() == ["runs/b", "200"]
    (row,) = json.loads(output_of(["runs", "runs/b", "--json"]))
    assert (row["parent"], row["branch_step"]) == ("runs/a", 200)
