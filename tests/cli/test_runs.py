"""`runner runs`: the table, conditions, order, columns and machine-readable output."""

import csv
import io
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from orbit_runner.cli.main import main
from orbit_runner.run_directory.evaluations import write_evaluation
from tests.support.problems import fails, output_of
from tests.support.run_directories import write_best, write_run


@pytest.fixture
def runs(here):
    """Four runs in `runs`: a finished, b diverged, c lost, d finished with other settings."""
    root = here / "runs"
    write_run(root / "a", accuracies={300: 0.9}, started="2026-11-20T10:00:00+0000")
    write_run(root / "b", outcome="Diverged: loss is nan", started="2026-11-20T11:00:00+0000")
    write_run(root / "c", outcome=None, losses=[2.0, 1.0], started="2026-11-20T12:00:00+0000")
    write_run(
        root / "d",
        accuracies={300: 0.95},
        flags=[("runtime.seed", "3"), ("task.model.dropout_rate", "0.1")],
        started="2026-11-20T13:00:00+0000",
    )
    write_best(root / "d", 200, accuracy=0.97)
    return root


def _rows(*arguments: str) -> list[list[str]]:
    return [line.split() for line in output_of(["runs", *arguments]).splitlines()]


def _names(*arguments: str) -> list[str]:
    return [row[0] for row in _rows(*arguments)[1:]]


def test_runs_in_the_directory_of_a_run_are_listed(runs):
    write_run(runs / "a" / "more" / "e", started="2026-11-20T09:00:00+0000")

    assert _names("runs/a") == ["runs/a", "runs/a/more/e"]
    assert _names()[-1] == "runs/a/more/e"


def test_table_lists_the_newest_run_first(runs):
    lines = output_of(["runs"]).splitlines()
    assert lines[0].split() == [
        "run", "status", "progress", "metric", "age", "experiment", "changes",
    ]  # fmt: skip
    assert [line.split()[0] for line in lines[1:]] == ["runs/d", "runs/c", "runs/b", "runs/a"]
    assert "accuracy 0.97 at 200" in lines[1]
    assert "seed=3 dropout_rate=0.1" in lines[1]
    assert "200/300" in lines[2]
    assert "lost" in lines[2]


def test_last_evaluation_that_is_not_finite_is_marked(tmp_path):
    write_run(tmp_path / "a", accuracies={200: 0.9, 300: None})
    write_best(tmp_path / "a", 200, accuracy=0.9)
    write_run(tmp_path / "b", accuracies={200: None, 300: 0.9})
    b, a = output_of(["runs", str(tmp_path), "--columns=+reason", "--sort=run"]).splitlines()[1:]
    assert "accuracy 0.9 at 200 (last: accuracy not finite)" in a
    assert "the last evaluation is not finite: accuracy" in a
    assert "not finite" not in b
    (row,) = json.loads(output_of(["runs", str(tmp_path / "a"), "--json"]))
    assert row["non_finite_metrics"] == ["accuracy"]


@pytest.mark.parametrize(
    ("accuracies", "text"),
    [
        ({100: 0.5, 200: 0.9}, ""),
        ({100: None, 200: 0.9}, "Some evaluations are not finite: accuracy at step 100"),
        ({100: None, 200: None}, "The last evaluation is not finite: accuracy at step 100, 200"),
    ],
)
def test_report_marks_evaluations_that_are_not_finite(tmp_path, accuracies, text):
    run = write_run(tmp_path / "a", accuracies=accuracies)
    assert main(["report", str(run)]) == 0
    page = (run / "report.html").read_text()
    assert (text in page) if text else ("not finite" not in page)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("accuracy > 0.95", ["d"]),
        ("accuracy >= 0.9", ["d", "a"]),
        ("last.accuracy > 0.96", []),
        ("best.accuracy > 0.96", ["d"]),
        ("status == finished", ["d", "a"]),
        ("status == 'finished' and accuracy < 0.95", ["a"]),
        ("status != finished", ["c", "b"]),
        ("progress < 1", ["c"]),
        ("runtime.seed == 3", ["d"]),
        ("task.model.dropout_rate == 0.4", ["c", "b", "a"]),
        ("runtime.deterministic == true", ["d", "c", "b", "a"]),
        ("age < 1s", []),
        ("age > 0.5d and age > 0h5s and age > 90", ["d", "c", "b", "a"]),
        ("age > 30m and idle > 2 h 30 min", ["d", "c", "b", "a"]),
        ("task.model.filters==[32, 64] and step>=300", ["d", "b", "a"]),
        ("run == \"runs/a\" and status != 'and step > 1'", ["a"]),
        ("experiment == digits and step == 300", ["d", "b", "a"]),
    ],
)
def test_where_selects_runs(runs, condition, expected):
    assert _names(f"--where={condition}") == [f"runs/{name}" for name in expected]


@pytest.mark.parametrize("name", ["try 2 h x", "a and step > 1", "it's [1", "x == 2 or y"])
def test_quoted_text_is_compared_as_it_is(runs, name):
    write_run(runs / name, started="2026-11-20T09:00:00+0000")

    quoted = f"'runs/{name}'".replace("it's", "it''s")
    for condition in (f"run=={quoted}", f"step > 0 and run == {quoted} and mode != eval"):
        (row,) = json.loads(output_of(["runs", "--json", f"--where={condition}"]))
        assert row["run"] == f"runs/{name}"


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        ("acuracy > 0.9", "unknown-name"),
        ("trainer.train_step > 1", "unknown-name"),
        ("accuracy", "bad-syntax"),
        ("accuracy is 1", "bad-syntax"),
        ("accuracy > high", "bad-syntax"),
        ("step > 0 and accuracy > high", "bad-syntax"),
        ("accuracy >", "bad-syntax"),
        ("accuracy > [", "bad-syntax"),
        ("run == 'a", "bad-syntax"),
        ("run == 'a' 'b'", "bad-syntax"),
        ("and step > 1", "bad-syntax"),
        *((f"age < {text}", "bad-syntax") for text in ("soon", "h", "3H", "1e3s", "٣h")),
        ("status == finished or step > 1", "bad-syntax"),
        ("status == finished and (step > 1)", "bad-syntax"),
    ],
)
@pytest.mark.usefixtures("runs")
def test_invalid_condition_is_an_error(condition, code):
    fails(["runs", f"--where={condition}"], code, "--where")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--sort=accuracy"], ["d", "a", "c", "b"]),
        (["--sort=progress"], ["d", "b", "a", "c"]),
        (["--sort=runtime.seed", "--limit=2"], ["c", "b"]),
        (["--sort=status"], ["c", "d", "a", "b"]),
        (["--limit=1"], ["d"]),
    ],
)
def test_sort_and_limit(runs, flags, expected):
    assert [Path(name).name for name in _names(*flags)] == expected


def test_setting_that_only_some_runs_of_an_experiment_have_is_known(runs):
    flags = [("trainer.optimizer_config.optimizer.type", "sgd")]
    write_run(runs / "e", flags=flags, started="2026-11-20T09:00:00+0000")

    prefix = "trainer.optimizer_config.optimizer"
    assert _names(f"--where={prefix}.sgd.momentum >= 0") == ["runs/e"]
    assert len(_names(f"--where={prefix}.adam.beta_1 > 0")) == 4


@pytest.mark.usefixtures("runs")
def test_error_says_that_a_text_with_and_needs_quotes():
    error = fails(["runs", "--where=run == cats and dogs"], "bad-syntax", "--where")
    assert str(error).splitlines()[0].endswith("put a text that contains `and` in quotes")


def test_sort_lists_the_lowest_loss_first(runs):
    write_run(runs / "e", losses=[3.0, 0.1], started="2026-11-20T14:00:00+0000")
    write_run(runs / "f", losses=[3.0, float("nan")], started="2026-11-20T15:00:00+0000")

    for column in ("training_loss", "last.training_loss"):
        names = _names(f"--sort={column}")
        assert [Path(name).name for name in names] == ["e", "d", "b", "a", "c", "f"]


def test_sort_follows_the_direction_that_the_runs_set(here):
    for name, score in (("a", 0.3), ("b", 0.1), ("c", 0.2)):
        directory = here / "runs" / name
        best = {"metric": "score", "directory": "best"}
        write_run(directory, flags=[("trainer.best_checkpoint_metric_comp", "lower")], best=best)
        write_best(directory, 300, score=score)

    for column in ("score", "best.score", "metric"):
        assert _names(f"--sort={column}") == ["runs/b", "runs/c", "runs/a"]


def test_columns_replace_or_extend_the_default(runs):
    columns = "--columns=run,task.model.dropout_rate,last.accuracy"
    assert _rows("--limit=1", columns)[1] == ["runs/d", "0.1", "0.95"]
    head = _rows("--limit=1", "--columns=+runtime.seed")[0]
    assert head[-2:] == ["runtime.seed", "changes"]
    fails(["runs", "--columns=accurcy"], "unknown-name", "--columns")


def test_json_and_csv_have_full_values(runs):
    arguments = ["--json", "--columns=+runtime.seed", "--where=runtime.seed==3"]
    (row,) = json.loads(output_of(["runs", *arguments]))
    assert row["run"] == "runs/d"
    assert row["best"] == {"accuracy": 0.97}
    assert row["runtime.seed"] == 3
    text = output_of(["runs", "--csv", "--columns=run,status,accuracy"])
    rows = list(csv.DictReader(io.StringIO(text)))
    assert rows[0] == {"run": "runs/d", "status": "finished", "accuracy": "0.97"}
    assert rows[1]["accuracy"] == ""


def test_results_of_a_split_are_those_of_its_newest_evaluation(runs):
    split = {"task.validation_data.split": "test"}
    other = {"task.validation_data.input_path": "b.csv", **split}
    for name, time, data, loss in (
        ("a", "10", split, 0.5), ("a", "09", split, 0.4), ("d", "10", split, 0.7),
        ("d", "11", other, 0.1), ("c", "12", {}, 0.2),
    ):  # fmt: skip
        write_evaluation(runs / name, 300, {"time": time, "data": data, "metrics": {"loss": loss}})
    rows = _rows("--sort=test.loss", "--columns=run,test.loss", "--where=status != diverged")
    assert rows[1:] == [["runs/a", "0.5"], ["runs/d", "0.7"], ["runs/c", "-"]]
    fails(["runs", "--sort=test.los"], "unknown-name", "--sort")


def test_directory_without_runs_prints_a_note(tmp_path, capsys):
    assert main(["runs", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", f"no runs in {tmp_path}\n")


@pytest.mark.usefixtures("runs")
def test_run_directory_without_permission_is_left_out(monkeypatch):
    scan: Callable[..., object] = os.scandir

    def refuse(path: object) -> object:
        if str(path).endswith("b"):
            raise PermissionError(13, "Permission denied")
        return scan(path)

    monkeypatch.setattr("os.scandir", refuse)
    assert _names() == ["runs/d", "runs/c", "runs/a"]


@pytest.mark.parametrize(
    ("kind", "lines"),
    [
        ("markdown", ["| run | best\\_step |", "| --- | --- |", "| a\\_b | - |"]),
        ("latex", [r"\begin{tabular}{ll}", r"run & best\_step \\", r"\hline", r"a\_b & - \\",
                   r"\end{tabular}"]),
    ],
)  # fmt: skip
def test_table_for_a_document(kind, lines, here):
    write_run(here / "runs/a_b")
    text = output_of(["runs", "runs/a_b", "--columns=run,best_step", f"--table={kind}"])
    assert text.replace("runs/", "").splitlines() == lines
    text = output_of(["compare", "runs", f"--table={kind}"])
    rows = [line for line in text.splitlines() if line.endswith(("|", r"\\"))]
    assert len({len(re.findall(r" [&|] ", line)) for line in rows if "---" not in line}) == 1
