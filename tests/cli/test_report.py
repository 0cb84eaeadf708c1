"""`runner report`: the page of a run, from complete, running and damaged runs."""

import json
import re
from pathlib import Path

import pytest

from orbit_runner.cli.main import main
from tests.support.pages import Page
from tests.support.problems import output_of
from tests.support.run_directories import write_best, write_run


@pytest.fixture
def run(here):
    """A finished run with training and validation accuracy, two starts and two checkpoints."""
    path = write_run(
        here / "runs/a",
        accuracies={100: 0.7, 200: 0.8, 300: 0.9},
        flags=[("task.model.dropout_rate", "0.1")],
        weights={100: "aa" * 32, 300: "ab" * 32},
        inexact=[],
        argv=["runner", "--experiment=digits"],
    )
    write_best(path, 200, accuracy=0.8, training_loss=0.25)
    record = json.loads((path / "run.json").read_text())
    before = {"started": "2026-11-20T09:00:00+0000", "outcome": "Error: <x>"}
    record["attempts"].insert(0, before)
    (path / "run.json").write_text(json.dumps(record))
    return path


def test_report_is_one_file_with_all_sections(run):
    assert output_of(["report", "runs/a"]) == "runs/a/report.html\n"
    page = Page(run / "report.html")
    assert page.loads == []
    assert page.headings == [
        "Curves", "Settings that override the experiment file", "Config", "Starts",
        "Weights", "Environment",
    ]  # fmt: skip
    assert page.charts == ["loss", "accuracy", "speed, steps/s"]
    for best in (r"accuracy\s+0\.8", r"training loss\s+0\.25"):
        assert re.search(rf"{best}\s+best, at step 200", page.text)
    assert "ab" * 32 in page.text
    assert "The config reproduces these weights bit for bit." in page.text
    assert "Error: <x>" in page.text  # As text, not as an element.
    assert "dropout_ rate 0.1" in page.text


def test_report_is_written_to_the_file_of_a_flag(run):
    assert output_of(["report", "runs/a", "--html=pages/a.html"]) == "pages/a.html\n"
    assert not (run / "report.html").exists()
    assert "digits" in Page(Path("pages/a.html")).text


def test_reasons_why_weights_are_not_reproducible_are_listed(run):
    record = json.loads((run / "run.json").read_text())
    record["attempts"][-1]["inexact"] = ["runtime.deterministic is false"]
    (run / "run.json").write_text(json.dumps(record))
    assert main(["report", "runs/a"]) == 0
    text = Page(run / "report.html").text
    assert "The config may not reproduce these weights:" in text
    assert "runtime.deterministic is false" in text


@pytest.mark.parametrize("name", ["run.json", "metrics.jsonl", "best/info.json"])
def test_damaged_or_missing_file_leaves_the_rest_of_the_report(run, name):
    text = (run / name).read_bytes()
    (run / name).write_bytes(text[: len(text) // 2])
    assert main(["report", "runs/a"]) == 0
    assert "digits" in Page(run / "report.html").text
    (run / name).unlink()
    assert main(["report", "runs/a"]) == 0
    assert "Config" in Page(run / "report.html").headings
