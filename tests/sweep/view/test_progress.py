"""The progress of a sweep: a line or an event for each trial."""

from __future__ import annotations

import pytest

from orbit_runner.sweep.view.progress import TrialProgress
from tests.support.sweep_results import RATE, UNITS, make_results, make_trial

_PENDING = make_trial(2, {RATE: 0.003, UNITS: [64]}, [None], status="pending", step=120)
_TRIALS = [
    make_trial(0, {RATE: 0.001, UNITS: [64]}, [0.9]),
    make_trial(1, {RATE: 0.002, UNITS: [128, 64]}, [0.95]),
    _PENDING,
    make_trial(3, {RATE: 0.004}, [], status="pending", step=0),
]


def test_line_is_printed_when_a_trial_ends(capfd: pytest.CaptureFixture[str]) -> None:
    shown = TrialProgress("plain")
    with shown.shown_scope():
        shown.update(make_results([_TRIALS[0], *_TRIALS[2:]]), {2: ""})
        assert capfd.readouterr().err.splitlines() == [
            "training 3 trials of digits_mlp …",
            "already ended: 1 finished, 2 pending",
        ]
        shown.update(make_results(_TRIALS), {2: ""})
        shown.update(make_results(_TRIALS), {2: ""})
    printed = capfd.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines()[0].startswith(
        "trial 1 finished at step 300: accuracy 0.95, best so far  "
        "learning_rate=0.002 hidden_units=[128, 64]  (2 of 4)"
    )
    assert len(printed.err.splitlines()) == 1


def test_quiet_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    shown = TrialProgress("none")
    with shown.shown_scope():
        shown.update(make_results(_TRIALS), {})
    assert capfd.readouterr() == ("", "")
