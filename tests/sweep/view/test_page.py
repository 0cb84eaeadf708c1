"""`sweep.html`."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from orbit_runner.sweep.results import SweepResults
from orbit_runner.sweep.view.charts import setting_charts, trials_chart
from orbit_runner.sweep.view.page import SweepPage
from tests.support.pages import Page
from tests.support.run_directories import write_run
from tests.support.sweep_results import (
    RATE,
    UNITS,
    learning_rate_sweep,
    make_results,
    make_trial,
)

_HOSTILE = "<script>alert('x')</script>\"&"


def _page(directory: Path, results: SweepResults) -> Page:
    SweepPage(directory).write(results)
    text = (directory / "sweep.html").read_text(encoding="utf-8")
    assert not re.search(r"https?://|url\(|@import", text)
    assert "NaN" not in text
    assert not re.search(r"[\s\"]nan\b", text)
    return Page(directory / "sweep.html")


@pytest.mark.parametrize(("count", "seeds"), [(1, 1), (8, 3), (32, 1)])
def test_page_is_complete_and_loads_nothing(tmp_path, count, seeds):
    page = _page(tmp_path, learning_rate_sweep(count, seeds=seeds))
    assert page.loads == []
    assert "Sweep of digits_mlp" in page.text
    assert ("Importance of settings" in page.text) is (count >= 8)
    assert ("Settings and objective" in page.text) is (count > 1)
    assert ("the next best: 3 seeds:" in page.text) is (count > 1 and seeds > 1)
    assert page.elements.count("tr") >= count


@pytest.mark.parametrize(
    "ranges",
    [
        [[0.93, 0.96], [0.92, 0.97], [0.945, 0.95]],
        [[1e-12, 1e12], [-1e12, 1.0], [float("nan"), 2.0]],
        [[1e300], [1.7e308], [0.5]],
        [[0.0], [0.0], [0.0]],
    ],
)
def test_charts_of_a_sweep_contain_the_lowest_and_the_highest_seed(tmp_path, ranges):
    choice = ["a", "b", "c" * 200]
    trials = [make_trial(n, {UNITS: choice[n]}, ranges[n]) for n in range(3)]
    results = make_results(trials, space={UNITS: choice})
    for chart in (trials_chart(results), *setting_charts(results)):
        drawn = [ends for line in chart.series for ends in line.band.values()]
        finite = [(min(r), max(r)) for r in ranges if len(r) > 1 and math.isfinite(sum(r))]
        assert sorted(drawn) == sorted(finite)
    _page(tmp_path, results)  # It asserts that nothing is outside of the axes.


def test_page_of_a_sweep_without_trials_and_of_one_that_begins(tmp_path):
    assert "No trial has started" in _page(tmp_path, make_results([])).text
    pending = [make_trial(n, {RATE: 0.1 * n}, [], status="pending", step=0) for n in range(3)]
    page = _page(tmp_path, make_results(pending))
    assert "3 trials: 3 pending" in page.text
    assert "figure" not in page.elements


def test_page_escapes_names_and_values(tmp_path):
    path = f"task.{_HOSTILE}"
    trials = [make_trial(n, {path: f"{_HOSTILE}{n}"}, [n / 10]) for n in range(9)]
    space = {path: [f"{_HOSTILE}{n}" for n in range(9)]}
    page = _page(tmp_path, make_results(trials, space=space, metric="<b>metric", experiment="<i>"))
    assert "b" in page.elements  # The page's own.
    text = "".join(page.texts)
    assert f"{_HOSTILE}8" in text
    assert "<b>metric" in text
    assert "<i>" in text


def test_trials_without_a_value_are_marked(tmp_path):
    trials = [
        make_trial(0, {RATE: 0.01, UNITS: [64]}, [0.9]),
        make_trial(1, {RATE: 0.02, UNITS: [64]}, [0.8], status="stopped", step=100),
        make_trial(2, {RATE: 0.05, UNITS: [64]}, [None], status="failed", step=10),
        make_trial(3, {RATE: 0.09, UNITS: [128, 64]}, [float("nan")], status="diverged", step=20),
    ]
    page = _page(tmp_path, make_results(trials))
    assert "trial 3, diverged: accuracy - at step 20" in page.text
    assert "trial 2, failed" in page.text
    assert "no value" in page.text
    assert "1 finished, 1 stopped, 1 diverged, 1 failed" in page.text


def test_reports_are_linked_and_curves_are_drawn_from_the_runs(tmp_path):
    results = make_results(
        [
            make_trial(0, {RATE: 0.01, UNITS: [64]}, [0.9, 0.92]),
            make_trial(1, {RATE: 0.02, UNITS: [64]}, [0.8, 0.85], status="stopped", step=200),
        ],
        search={"type": "random", "halving": {"rungs": [200], "keep": 0.5}},
    )
    for trial in results.trials:
        for run in trial.runs:
            accuracies = {200: 0.7 + trial.number / 10, 300: run.objective}
            write_run(tmp_path / run.directory, accuracies=accuracies)
    (tmp_path / "trials/0000/seed-17/report.html").write_text("a report")
    page = _page(tmp_path, results)
    assert page.loads == ["trials/0000/seed-17/report.html"]
    assert "rung at step 200" in page.text
    assert re.search(r"step 300\ntrial 1 learning_rate.*: 0.825\ntrial 0 .*: 0.91", page.text)


def test_page_is_written_again_when_a_run_has_new_records(tmp_path):
    results = make_results([make_trial(0, {RATE: 0.01, UNITS: [64]}, [0.9])])
    run = write_run(tmp_path / "trials/0000", accuracies={100: 0.5, 200: 0.6})
    assert "step 300\ntrial 0" not in _page(tmp_path, results).text
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 300, "split": "validation", "accuracy": 0.9}\n')
    assert re.search("step 300\ntrial 0 .*: 0.9", _page(tmp_path, results).text)


def test_line_of_the_best_so_far_ignores_stopped_trials():
    trials = [
        make_trial(0, {}, [0.99], status="stopped"),
        make_trial(1, {}, [0.5]),
        make_trial(2, {}, [0.4]),
        make_trial(3, {}, [0.9]),
    ]
    assert trials_chart(make_results(trials)).series[0].points == {1: 0.5, 2: 0.5, 3: 0.9}
