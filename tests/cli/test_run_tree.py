"""`runner runs --tree` and `runner compare` of branches."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orbit_runner.cli.commands.runs import tree_rows
from orbit_runner.cli.main import main
from orbit_runner.config.serialize import Difference
from orbit_runner.run_directory.branch import Branch, write_branch
from orbit_runner.run_directory.run_summary import read_summaries
from tests.support.problems import fails
from tests.support.run_directories import write_run


def _branch(run: Path, parent: Path, step: int, **values: str) -> None:
    changes = tuple(Difference(f"trainer.{name}", "1", text) for name, text in values.items())
    found = Branch(parent=parent, step=step, weights="", state="", configs=(), changes=changes)
    write_branch(run, found)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run a, two branches of it, b and d, and c, a branch of b. Run e is alone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    root = tmp_path / "runs"
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


def test_tree_lists_branches_below_the_run_that_they_continue(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["runs", "--tree"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition("  finished")[0].rstrip() for line in lines[1:]] == [
        "runs/a",
        "├─ runs/d at 120",
        "└─ runs/b at 200",
        "   └─ runs/c at 250",
        "runs/e",
    ]
    assert lines[3].endswith("seed=3")


def test_tree_has_plain_characters_where_others_cannot_be_written(runs: Path) -> None:
    rows = tree_rows(read_summaries([runs]), can_draw_lines=False)
    assert [name for _, name in rows] == [
        "runs/a",
        "|- runs/d at 120",
        "`- runs/b at 200",
        "   `- runs/c at 250",
        "runs/e",
    ]


def test_branch_whose_parent_is_not_listed_names_it(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["runs", "--tree", "--where=run in ('runs/a', 'runs/c')"]) == 0
    names = [line.partition("  finished")[0] for line in capsys.readouterr().out.splitlines()[1:]]
    assert [name.rstrip() for name in names] == ["runs/a", "runs/c at 250 of runs/b"]


def test_runs_that_name_each_other_as_parents_are_all_listed(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _branch(runs / "a", runs / "c", 10)
    assert main(["runs", "--tree", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert sorted(one["run"] for one in found) == [f"runs/{name}" for name in "abcde"]


def test_json_has_the_parent_and_the_step_of_each_branch(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["runs", "--tree", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(one["run"], one["parent"], one["branch_step"]) for one in found] == [
        ("runs/a", None, None),
        ("runs/d", "runs/a", 120),
        ("runs/b", "runs/a", 200),
        ("runs/c", "runs/b", 250),
        ("runs/e", None, None),
    ]


def test_branches_can_be_selected_by_their_parent(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--where=parent == 'runs/a' and branch_step > 150", "--columns=run,branch_step"]
    assert main(["runs", *arguments]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["runs/b", "200"]


@pytest.mark.usefixtures("runs")
def test_csv_of_a_tree_is_rejected() -> None:
    fails(["runs", "--tree", "--csv"], "no-effect", "--tree")


def test_comparison_tells_where_runs_branched_off(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "240")
    assert main(["compare", "runs/a", "runs/b", "runs/c", "runs/d"]) == 0
    lines = capsys.readouterr().out.splitlines()
    branches = next(line for line in lines if line.startswith("branch"))
    assert branches.split("  ", 1)[1].split("  ")[-1].strip() == "step 120 of a"
    assert "step 200 of a" in branches
    assert "step 250 of b" in branches
    weights = next(line for line in lines if "differ from a" in line)
    assert "differ from a at step 300, equal at step 200" in weights
    assert "differ from a at step 200, common up to step 120" in weights


def test_comparison_draws_the_common_history_once(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "runs/a", "runs/b", "--metric=training_loss"]) == 0
    text = capsys.readouterr().out
    plot = [line.partition("│")[2] for line in text.splitlines() if "│" in line]
    marks = "".join(plot).replace(" ", "")
    # Only the step at which b branches off belongs to both.
    assert sorted(marks) == ["*", "a", "a", "b"]
    assert main(["compare", "runs/a", "runs/b", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["common_step"] for one in found["runs"]] == [None, 200]
    assert [one["branch_step"] for one in found["runs"]] == [None, 200]
    assert len(found["curves"]["train/training_loss"]["b"]) == 3


def test_page_marks_the_steps_of_branches(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "runs/a", "runs/b", "runs/d", "--html=page.html"]) == 0
    page = Path("page.html").read_text()
    loss = page[page.index("<figcaption>training loss") :].partition("</figure>")[0]
    assert loss.count('<line class="mark"') == 2
    assert "<title>b branches off at step 200</title>" in loss
    assert "<title>d branches off at step 120</title>" in loss
