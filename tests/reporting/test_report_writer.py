"""The report is kept up to date during a run, rarely enough, and never ends the run."""

import json
import logging
from pathlib import Path
from types import SimpleNamespace

import pytest

from orbit_runner.cli.main import main
from orbit_runner.reporting import report_writer
from orbit_runner.reporting.report_writer import ReportWriter
from tests.support.run_directories import write_run


class _Clock:
    """A clock that only the test and the writing of a report move forward."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cost: float) -> None:
        self.now, self.written = 1000.0, 0
        self._cost = cost
        monkeypatch.setattr("time.monotonic", lambda: self.now)
        monkeypatch.setattr(report_writer, "write_report", self._write)
        monkeypatch.setattr(ReportWriter, "_collect", lambda *arguments: None)

    def _write(self, path: Path, target: Path) -> None:
        self.now += self._cost
        self.written += 1


@pytest.mark.parametrize(
    ("cost", "pause"),
    [(0.01, 60.0), (1.0, 200.0)],
    ids=["interval", "expensive report"],
)
def test_report_is_updated_after_the_interval_or_200_times_its_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cost: float, pause: float
) -> None:
    clock = _Clock(monkeypatch, cost)
    writer = ReportWriter(tmp_path, 60.0)
    run = SimpleNamespace(step=1, train_steps=1)
    for seconds, expected in ((59.0, 0), (1.0, 1), (pause - 1, 1), (1.0, 2), (0.0, 2)):
        clock.now += seconds
        writer.on_loop_end(run, {})
        writer.on_evaluate(run, {})
        assert clock.written == expected


def test_report_that_cannot_be_written_is_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "run").write_text("a file, where the directory should be")
    writer = ReportWriter(tmp_path / "run", 60.0)
    with caplog.at_level(logging.INFO, logger="orbit_runner"):
        writer.write()
        writer.write()
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith(f"warning: {tmp_path}/run/report.html cannot be written: ")


def test_report_of_a_run_in_progress_is_written(tmp_path: Path) -> None:
    path = write_run(tmp_path / "a", outcome=None)
    ReportWriter(path, 60.0).write()
    assert "<h1>digits</h1>" in (path / "report.html").read_text()


@pytest.mark.slow
def test_run_writes_a_report_that_does_not_change_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = ["run", "--experiment=digits_mlp", "--train_steps=20", "--runtime.intra_op_threads=0"]
    assert main([*run, "--model_dir=a", "--trainer.report_interval=0.001"]) == 0
    assert main([*run, "--model_dir=b", "--trainer.report_interval=0"]) == 0
    text = (tmp_path / "a/report.html").read_text()
    assert '<b class="good">finished</b>' in text
    assert not (tmp_path / "b/report.html").exists()
    last = [json.loads((tmp_path / name / "run.json").read_text())["attempts"][-1] for name in "ab"]
    assert last[0]["weights"] == last[1]["weights"]
    assert last[0]["weights"] in text
    # Evaluations are the same, too.
    assert main(["runs", "a", "--columns=run,last.accuracy,status"]) == 0
