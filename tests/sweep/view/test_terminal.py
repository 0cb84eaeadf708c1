"""The live table of a sweep: its lines at several sizes, and the lines of other outputs."""

from __future__ import annotations

import json

import pytest

from orbit_runner.sweep.results import SweepResults
from orbit_runner.sweep.view.terminal import TrialLines, live_lines
from tests.support.sweep_results import RATE, UNITS, learning_rate_sweep, make_results, make_trial

_PENDING = make_trial(2, {RATE: 0.003, UNITS: [64]}, [None], status="pending", step=120)
_TRIALS = [
    make_trial(0, {RATE: 0.001, UNITS: [64]}, [0.9]),
    make_trial(1, {RATE: 0.002, UNITS: [128, 64]}, [0.95]),
    _PENDING,
    make_trial(3, {RATE: 0.004}, [], status="pending", step=0),
]


def _lines(results: SweepResults, width: int = 100, height: int = 20) -> list[str]:
    running = {2: "step 120 of 300"}
    return [line.plain for line in live_lines(results, running, width, height, ["1:00 elapsed"])]


def test_table_shows_each_trial_and_marks_the_best() -> None:
    assert _lines(make_results(_TRIALS)) == [
        "digits_mlp  2 finished, 2 pending, 1 running  1:00 elapsed",
        "   trial  status           step  accuracy  learning_rate  hidden_units",
        "       0  finished          300  0.9       0.001          [64]",
        "*      1  finished          300  0.95      0.002          [128, 64]",
        "       2  step 120 of 300   120  -         0.003          [64]",
        "       3  pending             0  -         0.004          -",
    ]


@pytest.mark.parametrize(("width", "height"), [(20, 3), (40, 6), (79, 12), (200, 60)])
def test_table_fits_on_the_terminal(width: int, height: int) -> None:
    lines = _lines(learning_rate_sweep(200, seeds=3), width, height)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width


def test_running_and_best_trials_are_shown_if_there_are_many() -> None:
    results = learning_rate_sweep(50)
    assert results.best is not None
    lines = [line.plain for line in live_lines(results, {7: "", 31: ""}, 100, 8)]
    numbers = [int(line.replace("*", " ").split()[0]) for line in lines[2:-1]]
    assert {7, 31, results.best.number} < set(numbers)
    assert numbers == sorted(numbers)
    assert lines[-1] == "… and 45 more trials"
    assert sum("running" in line for line in lines[2:]) == 2


def test_elsewhere_a_line_is_printed_when_a_trial_ends(capfd: pytest.CaptureFixture[str]) -> None:
    table = TrialLines("plain", 10.0)
    with table.shown_scope():
        table.update(make_results([_TRIALS[0], *_TRIALS[2:]]), {2: ""})
        assert capfd.readouterr().err.splitlines() == [
            "training 3 trials of digits_mlp …",
            "already ended: 1 finished, 2 pending",
        ]
        table.update(make_results(_TRIALS), {2: ""})
        table.update(make_results(_TRIALS), {2: ""})
    printed = capfd.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines()[0].startswith(
        "trial 1 finished at step 300: accuracy 0.95, best so far  "
        "learning_rate=0.002 hidden_units=[128, 64]  (2 of 4)"
    )
    assert len(printed.err.splitlines()) == 1


def test_json_has_an_event_for_each_trial(capfd: pytest.CaptureFixture[str]) -> None:
    table = TrialLines("json", 10.0)
    with table.shown_scope():
        table.update(make_results([]), {})
        diverged = make_trial(2, {RATE: 9.0}, [float("nan")], status="diverged", step=8)
        table.update(make_results([*_TRIALS[:2], diverged]), {})
    events = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    found = [event for event in events if event["event"] == "trial"]
    assert [(one["trial"], one["objective"], one["best"]) for one in found] == [
        (0, 0.9, False), (1, 0.95, True), (2, None, False),
    ]  # fmt: skip
    assert found[2]["settings"] == {RATE: 9.0}
    assert (found[2]["ended"], found[2]["trials"]) == (3, 3)


def test_quiet_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    table = TrialLines("none", 10.0)
    with table.shown_scope():
        table.update(make_results(_TRIALS), {})
    assert capfd.readouterr() == ("", "")
