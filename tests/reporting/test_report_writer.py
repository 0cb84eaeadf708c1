"""The report is kept up to date during a run, rarely enough, and never ends the run."""

import logging
from pathlib import Path
from types import SimpleNamespace

import pytest

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
    tmp_path, monkeypatch, cost, pause
):
    clock = _Clock(monkeypatch, cost)
    writer = ReportWriter(tmp_path, 60.0)
    run = SimpleNamespace(step=1, train_steps=1)
    for seconds, expected in ((59.0, 0), (1.0, 1), (pause - 1, 1), (1.0, 2), (0.0, 2)):
        clock.now += seconds
        writer.on_loop_end(run, {})
        writer.on_evaluate(run, {})
        assert clock.written == expected


def test_report_that_cannot_be_written_is_one_warning(tmp_path, caplog):
    (tmp_path / "run").write_text("a file, where the directory should be")
    writer = ReportWriter(tmp_path / "run", 60.0)
    with caplog.at_level(logging.INFO, logger="orbit_runner"):
        writer.write()
        writer.write()
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith(f"warning: {tmp_path}/run/report.html cannot be written: ")


def test_report_of_a_run_in_progress_is_written(tmp_path):
    path = write_run(tmp_path / "a", outcome=None)
    ReportWriter(path, 60.0).write()
    assert "<h1>digits</h1>" in (path / "report.html").read_text()
