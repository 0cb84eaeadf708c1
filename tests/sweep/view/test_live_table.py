"""The live table of a sweep: its lines at several sizes, and the lines of other outputs."""

from __future__ import annotations

import json

import pytest

from orbit_runner.sweep.results import SweepResults
from orbit_runner.sweep.view.live_table import LiveTable
from orbit_runner.sweep.view.terminal_table import table_lines
from orbit_runner.sweep.view.time_left import TimeLeft, expected_steps
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
    return [line.plain for line in table_lines(results, running, width, height, ["1:00 elapsed"])]


def test_table_shows_each_trial_and_marks_the_best() -> None:
    assert _lines(make_results(_TRIALS)) == [
        "digits_mlp  2 finished, 1 running, 1 pending  1:00 elapsed",
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
    lines = [line.plain for line in table_lines(results, {7: "", 31: ""}, 100, 8)]
    numbers = [int(line.replace("*", " ").split()[0]) for line in lines[2:-1]]
    assert {7, 31, results.best.number} < set(numbers)
    assert numbers == sorted(numbers)
    assert lines[-1] == "… and 45 more trials"
    assert sum("running" in line for line in lines[2:]) == 2


def test_elsewhere_a_line_is_printed_when_a_trial_ends(capfd: pytest.CaptureFixture[str]) -> None:
    with LiveTable("plain") as table:
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
        "learning_rate=0.002 hidden_units=[128, 64]  (2 of 4"
    )
    assert len(printed.err.splitlines()) == 1


def test_json_has_an_event_for_each_trial(capfd: pytest.CaptureFixture[str]) -> None:
    with LiveTable("json") as table:
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
    with LiveTable("none") as table:
        table.update(make_results(_TRIALS), {})
    assert capfd.readouterr() == ("", "")


def test_trial_that_is_trained_further_is_printed_again(capfd: pytest.CaptureFixture[str]) -> None:
    ended = [make_trial(0, {RATE: 0.1}, [0.5])]
    again = [make_trial(0, {RATE: 0.1}, [0.5], status="pending")]
    with LiveTable("plain") as table:
        for trials in (ended, again, ended):
            table.update(make_results(trials), {})
    assert capfd.readouterr().err.count("trial 0 finished") == 1


def test_time_left_follows_from_the_steps_since_the_start() -> None:
    times = iter([100.0, 110.0])
    estimate = TimeLeft(clock=lambda: next(times))
    done, waiting = _TRIALS[0], make_trial(1, {RATE: 0.1}, [None], status="pending", step=0)
    estimate.update(make_results([done, waiting]))
    assert estimate.remaining_seconds(make_results([done, waiting])) is None
    half = make_trial(1, {RATE: 0.1}, [None], status="pending", step=100)
    # 100 steps took 10 seconds, and 200 are left.
    assert estimate.remaining_seconds(make_results([done, half])) == 20.0


def test_halving_makes_runs_shorter_on_average() -> None:
    halving = {"type": "random", "halving": {"rungs": [100, 200], "keep": 0.5}}
    assert expected_steps(make_results([], search=halving)) == 100 + 50 + 25
    assert expected_steps(make_results([])) == 300
