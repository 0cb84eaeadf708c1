"""Branches in `runner runs` and `runner compare`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orbit_runner.cli.main import main
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
    common = {100: "aa", 200: "bb"}
    write_run(root / "a", weights={**common, 300: "cc"}, losses=[3.0, 2.0, 1.0])
    write_run(root / "b", weights={**common, 300: "dd"}, losses=[3.0, 2.0, 0.5])
    write_run(root / "c", weights={**common, 300: "ee"}, losses=[3.0, 2.0, 0.2])
    write_run(root / "d", weights={100: "aa", 200: "ff", 300: "gg"}, losses=[3.0, 1.5, 0.1])
    write_run(root / "e", started="2026-11-20T09:00:00+0000")
    for run in "abcd":  # Otherwise, all have the same final weights.
        record = json.loads((root / run / "run.json").read_text())
        record["attempts"][0]["weights"] = run * 64
        (root / run / "run.json").write_text(json.dumps(record))
    _branch(root / "b", root / "a", 200, seed="3")
    _branch(root / "c", root / "b", 250)
    _branch(root / "d", root / "a", 120)
    return root


def test_branches_can_be_selected_by_their_parent(runs):
    arguments = ["--where=parent == 'runs/a' and branch_step > 150", "--columns=run,branch_step"]
    assert output_of(["runs", *arguments]).splitlines()[1].split() == ["runs/b", "200"]
    (row,) = json.loads(output_of(["runs", "runs/b", "--json"]))
    assert (row["parent"], row["branch_step"]) == ("runs/a", 200)


def test_comparison_tells_where_runs_branched_off(runs, monkeypatch):
    monkeypatch.setenv("COLUMNS", "240")
    lines = output_of(["compare", "runs/a", "runs/b", "runs/c", "runs/d"]).splitlines()
    branches = next(line for line in lines if line.startswith("branch"))
    assert branches.split("  ", 1)[1].split("  ")[-1].strip() == "step 120 of a"
    assert "step 200 of a" in branches
    assert "step 250 of b" in branches
    weights = next(line for line in lines if "differ from a" in line)
    assert "differ from a at step 300, equal at step 200" in weights
    assert "differ from a at step 200, common up to step 120" in weights


def test_comparison_has_the_common_history_once(runs):
    output = json.loads(output_of(["compare", "runs/a", "runs/b", "--json"]))
    assert [run_row["common_step"] for run_row in output["runs"]] == [None, 200]
    assert [run_row["branch_step"] for run_row in output["runs"]] == [None, 200]
    assert len(output["curves"]["train/training_loss"]["b"]) == 3


def test_page_marks_the_steps_of_branches(runs):
    assert main(["compare", "runs/a", "runs/b", "runs/d", "--html=page.html"]) == 0
    page = Path("page.html").read_text()
    loss = page[page.index("<figcaption>training loss") :].partition("</figure>")[0]
    assert loss.count('<line class="mark"') == 2
    assert "<title>b branches off at step 200</title>" in loss
    assert "<title>d branches off at step 120</title>" in loss
