"""`runner compare`: text, JSON, CSV and the HTML page."""

import json
import math
import re
from pathlib import Path

import pytest

from orbit_runner.cli.main import main
from orbit_runner.compare.runs import RunComparison, compare
from orbit_runner.run_directory.evaluations import write_evaluation
from tests.support.pages import Page
from tests.support.problems import fails, output_of
from tests.support.run_directories import write_best, write_run


@pytest.fixture
def runs(here, monkeypatch):
    """Three runs in `runs`: b repeats a, and c has another seed and network."""
    monkeypatch.setenv("COLUMNS", "120")
    root = here / "runs"
    same = {"accuracies": {100: 0.7, 200: 0.8, 300: 0.9}, "weights": {100: "aa", 300: "bb"}}
    write_run(root / "a", **same)
    write_run(root / "b", **same)
    write_run(
        root / "c",
        accuracies={100: 0.6, 200: 0.85, 300: 0.95},
        losses=[3.0, None, 0.1],
        flags=[("runtime.seed", "3"), ("task.model.filters", "[8, 16]")],
        weights={100: "aa", 300: "cc"},
        software={"tensorflow": "2.21.0"},
    )
    _set_weights(root / "c", "cd" * 32)
    write_best(root / "c", 300, accuracy=0.95)
    return root


def _set_weights(path: Path, weights: str) -> None:
    record = json.loads((path / "run.json").read_text())
    record["attempts"][-1]["weights"] = weights
    (path / "run.json").write_text(json.dumps(record))


def _rows(text: str) -> dict[str, list[str]]:
    """Returns the rows of the table by their first cell; cells are two spaces apart."""
    cells = [re.split(r" {2,}", line.strip()) for line in text.splitlines()]
    return {row[0]: row[1:] for row in cells if len(row) > 1}


def test_table_has_settings_software_metrics_and_weights(runs):
    text = output_of(["compare", "runs/a", "runs/b", "runs/c"])
    rows = _rows(text)
    assert text.splitlines()[0].split() == ["a", "b", "c"]
    assert rows["runtime.seed"] == ["17", "17", "3"]
    assert rows["task.model.filters"] == ["[32, 64]", "[32, 64]", "[8, 16]"]
    assert rows["tensorflow"] == ["2.20.0", "2.20.0", "2.21.0"]
    assert rows["wall time"] == ["1:30"] * 3
    assert rows["steps/s, median"] == ["25", "25", "25"]
    assert rows["weights"] == ["abababababab", "abababababab", "cdcdcdcdcdcd"]
    assert rows["equal to a"] == ["differ from a at step 300, equal at step 100"]
    assert "task.model.name" not in rows
    best, last, after = map(text.index, ("best eval", "last eval", "settings that differ"))
    assert _rows(text[best:last])["accuracy"] == ["-", "-", "0.95"]
    assert _rows(text[best:last])["step"] == ["-", "-", "300"]
    assert _rows(text[last:after])["accuracy"] == ["0.9", "0.9", "0.95 (+0.05) *"]


def test_runs_of_a_directory_are_compared(runs):
    text = output_of(["compare", "runs", "runs/a"])
    assert text.splitlines()[0].split() == ["a", "b", "c"]


def test_results_of_other_splits_have_a_row_for_each_metric(runs):
    for name, accuracy in (("a", 0.5), ("a", 0.7), ("c", 0.75)):
        metrics = {"accuracy": accuracy, "validation_examples": 9.0}
        data = {"task.validation_data.split": "test"}
        write_evaluation(
            runs / name, 300, {"time": str(accuracy), "data": data, "metrics": metrics}
        )
    text = output_of(["compare", "runs"])
    assert _rows(text)["test.accuracy"] == ["0.7", "-", "0.75 (+0.05) *"]
    assert "validation_examples" not in text
    assert text.index("last evaluation") < text.index("other splits") < text.index("settings that")
    comparison = json.loads(output_of(["compare", "runs", "--json"]))
    assert comparison["splits"] == {"test.accuracy": [0.7, None, 0.75]}


def test_run_whose_config_cannot_be_read_is_not_compared_by_settings(runs):
    (runs / "b/config.yaml").write_text("task: [")
    rows = _rows(output_of(["compare", "runs"]))
    assert rows["config.yaml"] == ["-", "cannot be read", "-"]
    assert rows["runtime.seed"] == ["17", "-", "3"]
    assert "task.model.name" not in rows


def test_json_has_everything(runs):
    comparison = json.loads(output_of(["compare", "runs", "--json"]))
    assert [run["run"] for run in comparison["runs"]] == ["runs/a", "runs/b", "runs/c"]
    assert [run["compared"] for run in comparison["runs"]] == [
        "", "equal to a", "differ from a at step 300, equal at step 100",
    ]  # fmt: skip
    assert comparison["settings"] == {
        "runtime.seed": [17, 17, 3],
        "task.model.filters": [[32, 64], [32, 64], [8, 16]],
    }
    assert comparison["software"] == {"tensorflow": ["2.20.0", "2.20.0", "2.21.0"]}
    assert comparison["curves"]["train/training_loss"]["c"] == [[100, 3.0], [200, None], [300, 0.1]]
    assert comparison["runs"][2]["best"] == {"accuracy": 0.95}


def test_page_is_self_contained_and_has_a_chart_for_each_metric(runs, capsys):
    assert main(["compare", "runs", "--html=pages/compare.html"]) == 0
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "")
    page = Page(Path("pages/compare.html"))
    assert page.loads == []
    assert page.elements.count("figure") == 3  # accuracy, training loss, speed
    assert page.elements.count("table") == 1
    assert "c, step 200: not a finite number" in page.text
    assert "prefers-color-scheme:dark" in page.text


@pytest.mark.usefixtures("runs")
def test_invalid_arguments_are_errors():
    fails(["compare", "runs/a/checkpoints"], "not-a-run", "RUN")
    fails(["compare", "runs", "--metric=acuracy"], "unknown-name", "--metric")
    fails(["compare", "runs", "--html=runs/a/config.yaml/page.html"], "bad-path", "--html")


def test_run_that_is_being_written_is_compared(runs):
    for name in ("run.json", "config.yaml"):
        text = (runs / "b" / name).read_text()
        (runs / "b" / name).write_text(text[: len(text) // 2])
    with (runs / "b/metrics.jsonl").open("a") as file:
        file.write('{"step": 400, "spl')
    assert _rows(output_of(["compare", "runs/a", "runs/b"]))["status"] == ["finished", "lost"]


def _comparison(tmp_path: Path, comparison: str = "") -> RunComparison:
    """Returns three runs with accuracies of 0.9, 0.8 and 0.9."""
    flags = [("trainer.best_checkpoint_metric_comp", comparison)] if comparison else []
    for name, accuracy in (("a", 0.9), ("b", 0.8), ("c", 0.9)):
        write_run(tmp_path / name, accuracies={300: accuracy}, flags=flags)
        write_best(tmp_path / name, 300, accuracy=accuracy)
    return compare([tmp_path / name for name in "abc"])


def test_best_values_are_those_in_the_better_direction(tmp_path):
    comparison = _comparison(tmp_path)
    assert comparison.winners("accuracy", [0.9, 0.8, 0.9]) == [0, 2]
    assert comparison.winners("validation_loss", [0.9, 0.8, None]) == [1]
    assert comparison.winners("accuracy", [0.9, math.nan, math.inf]) == []
    assert comparison.winners("accuracy", [0.9, 0.9, 0.9]) == []
    assert comparison.winners("learning_rate", [0.9, 0.8, 0.7]) == []


def test_direction_of_the_best_checkpoint_counts(tmp_path):
    assert _comparison(tmp_path, "lower").winners("accuracy", [0.9, 0.8, 0.9]) == [1]


def test_runs_on_different_data_have_no_best_value(tmp_path):
    for name, source in (("a", "digits"), ("b", "synthetic")):
        flags = [("task.validation_data.source", source)]
        write_run(tmp_path / name, accuracies={300: 0.9}, flags=flags)
    comparison = compare([tmp_path / "a", tmp_path / "b"])
    assert comparison.winners("accuracy", [0.9, 0.8]) == []
