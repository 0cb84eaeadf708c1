"""Where measurements of the machine are shown, and where they are left out."""

import json
import re

import pytest

from orbit_runner.cli.main import main
from orbit_runner.run_directory.run_reader import RunReader
from tests.support.run_directories import write_run

_VALUES = {
    "system/memory_gib": 1.5,
    "system/cpu_percent": 90.0,
}


@pytest.fixture
def run(here):
    """A run whose training records, but not those of evaluations, contain the values."""
    path = write_run(here / "runs/a", accuracies={300: 0.9})
    records = map(json.loads, (path / "metrics.jsonl").read_text().splitlines())
    lines = [
        json.dumps({**record, **(_VALUES if record["split"] == "train" else {})})
        for record in records
    ]
    (path / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return path


def test_report_ends_with_the_machine(run):
    assert main(["report", "runs/a"]) == 0
    text = (run / "report.html").read_text()
    assert re.findall(r"<figcaption>([^<]*)<", text) == [
        "loss",
        "accuracy",
        "speed, steps/s",
        "memory of the process, GiB",
        "processor use of the process, % of a core",
    ]


def test_main_metric_of_a_run_without_evaluations_is_the_loss(tmp_path):
    path = write_run(tmp_path / "a", best={})
    line = {"step": 400, "split": "train", "time": 1.0, **_VALUES, "training_loss": 0.1}
    with (path / "metrics.jsonl").open("a") as file:
        file.write(f"{json.dumps(line)}\n")
    assert RunReader(path).main_metric == "training_loss"
