"""What a terminal shows of a sweep: its progress, and the table at its end."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from orbit_runner.reporting.progress.lines import make_progress
from orbit_runner.sweep.view.trials import TrialNotes, print_summary, summary_lines
from tests.support.sweep_results import RATE, UNITS, learning_rate_sweep, make_results, make_trial

_DIRECTORY = Path("runs/my sweep")


def test_best_trials_come_first_and_others_last():
    trials = [
        make_trial(0, {}, [None], status="pending"),
        make_trial(1, {}, [0.5]),
        make_trial(2, {}, [0.99], status="stopped", step=100),
        make_trial(3, {}, [0.9]),
        make_trial(4, {}, [0.2], status="stopped", step=200),
        make_trial(5, {}, [None], status="failed"),
        make_trial(6, {}, [0.9]),
    ]
    assert [trial.number for trial in make_results(trials).ranked] == [3, 6, 1, 4, 2, 5, 0]
    assert [trial.number for trial in make_results(trials, mode="min").ranked][:3] == [1, 3, 6]
    assert make_results([make_trial(0, {}, [math.nan]), make_trial(1, {}, [0.5])]).best.number == 1


def test_summary_has_the_ten_best_trials_and_the_command_of_the_winner():
    lines = list(summary_lines(_DIRECTORY, learning_rate_sweep(30), 100))
    assert lines[0] == "digits_mlp: 30 trials: 30 finished"
    assert len(lines[3:]) == 10 + 3
    command = "runner --experiment='runs/my sweep/best.yaml' --model_dir=runs/best"
    assert lines[-1].endswith(f"  {command}")


def test_summary_with_seeds_says_whether_the_lead_is_chance():
    trials = [
        make_trial(0, {RATE: 0.1, UNITS: [64]}, [0.90, 0.91, 0.92]),
        make_trial(1, {RATE: 0.2, UNITS: [64]}, [0.95, 0.96, 0.975]),
    ]
    text = "\n".join(summary_lines(_DIRECTORY, make_results(trials), 120))
    assert "0.962 ± 0.013" in text
    assert "trial 1 against trial 0, the next best: 3 seeds: +0.0517 [" in text


@pytest.mark.parametrize("results", [make_results([]), make_results([make_trial(0, {}, [None])])])
def test_summary_without_a_winner(results):
    lines = list(summary_lines(_DIRECTORY, results, 80))
    assert lines[-1] == "no trial has finished with a value of accuracy"


def test_json_is_the_file_of_the_sweep(capsys):
    results = learning_rate_sweep(2)
    print_summary(_DIRECTORY, results, as_json=True)
    printed = capsys.readouterr().out
    assert printed == results.to_json()
    assert json.loads(printed)["experiment"] == "digits_mlp"


_PENDING = make_trial(2, {RATE: 0.003, UNITS: [64]}, [None], status="pending", step=120)
_TRIALS = [
    make_trial(0, {RATE: 0.001, UNITS: [64]}, [0.9]),
    make_trial(1, {RATE: 0.002, UNITS: [128, 64]}, [0.95]),
    _PENDING,
    make_trial(3, {RATE: 0.004}, [], status="pending", step=0),
]


def test_line_is_printed_when_a_trial_ends(capfd):
    notes = TrialNotes()
    with make_progress("plain").shown_scope():
        notes.update(make_results([_TRIALS[0], *_TRIALS[2:]]))
        assert capfd.readouterr().err.splitlines() == [
            "training 3 trials of digits_mlp …",
            "already ended: 1 finished, 2 pending",
        ]
        notes.update(make_results(_TRIALS))
        notes.update(make_results(_TRIALS))
    printed = capfd.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines()[0].startswith(
        "trial 1 finished at step 300: accuracy 0.95, best so far  "
        "learning_rate=0.002 hidden_units=[128, 64]  (2 of 4)"
    )
    assert len(printed.err.splitlines()) == 1


def test_quiet_prints_nothing(capfd):
    with make_progress("none").shown_scope():
        TrialNotes().update(make_results(_TRIALS))
    assert capfd.readouterr() == ("", "")
