"""Where two runs begin to differ, determined from the files they left on disk."""

import json
from pathlib import Path
from typing import Any

import pytest

from orbit_runner.checkpoint.record import CheckpointRecord
from orbit_runner.compare.histories import LossDiff, compare_runs
from orbit_runner.run_directory.run_reader import Fingerprints, RunReader, read_history


def _history(weights: str, state: str = "", **values: Any) -> RunReader:
    """Returns the history of a run with a checkpoint every ten steps, one letter for each."""
    pairs = zip(weights, state or weights, strict=True)
    fingerprints = {10 * n + 10: Fingerprints(*pair) for n, pair in enumerate(pairs)}
    run = RunReader(Path("nowhere"))
    vars(run).update({"losses": {}, "attempts": (), **values, "fingerprints": fingerprints})
    return run


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (_history("abc"), _history("abc"), (True, None, None, None)),
        (_history("abc"), _history("abx"), (False, 30, 30, 20)),
        (_history("abc"), _history("xbc"), (False, 10, 10, None)),
        (_history("abc"), _history("abc", "axc"), (False, 20, None, 10)),
        (_history("abc"), _history("abx", "axx"), (False, 20, 30, 10)),
        (_history("abc"), _history("ab"), (False, None, None, 20)),
        (_history("abc"), _history("abcd"), (True, None, None, None)),
        (_history("abc"), _history(""), (False, None, None, None)),
        (_history(""), _history(""), (False, None, None, None)),
    ],
)
def test_comparison_finds_the_first_differing_checkpoint(left, right, expected):
    diff = compare_runs(left, right, step=30)
    assert (diff.equal, diff.first, diff.first_weights, diff.last_equal) == expected


def test_only_checkpoints_in_the_given_range_are_compared():
    diff = compare_runs(_history("abcd"), _history("xbcy"), step=30, after=10)
    assert diff.equal
    assert diff.compared == (20, 30)


@pytest.mark.parametrize(
    ("right", "attempts", "after", "expected"),
    [
        # A loss that differs before the last equal checkpoint does not concern the weights.
        ({6: 9.0, 12: 2.0, 18: 3.0}, 1, -1, None),
        ({6: 1.0, 12: 9.0, 18: 9.0}, 1, -1, 12),
        ({6: 1.0, 12: 2.0, 18: 9.0}, 1, -1, 18),
        ({6: 1.0, 12: 2.0, 18: None}, 1, -1, 18),
        # The record of step 12 began at step 6; a run that resumed at step 10 restarted it.
        ({6: 1.0, 12: 9.0, 18: 3.0}, 2, -1, None),
        ({6: 1.0, 12: 9.0, 18: 3.0}, 1, 10, None),
        ({6: 1.0, 12: 9.0, 18: 9.0}, 2, -1, 18),
        # Differences after the first differing checkpoint are ignored.
        ({6: 1.0, 12: 2.0, 24: 9.0}, 1, -1, None),
        ({18: 3.0}, 1, -1, None),
    ],
)
def test_logged_loss_narrows_down_the_first_difference(right, attempts, after, expected):
    losses = {6: 1.0, 12: 2.0, 18: 3.0, 24: 4.0}
    left = _history("ab", losses=losses, attempts=({},) * attempts)
    diff = compare_runs(
        left, _history("ax", losses=right), step=20, after=after, summary_interval=6
    )
    assert (diff.loss and diff.loss.step) == expected
    if expected == 12:
        assert diff.loss == LossDiff(12, 2.0, 9.0)


def test_loss_difference_before_a_missing_checkpoint_is_found():
    left = _history("abc", losses={25: 1.0})
    other = _history("ab", losses={25: None})
    assert compare_runs(left, other, step=30).loss == LossDiff(25, 1.0, None)


def test_history_of_a_killed_process_is_read(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    lines = [{"step": 1, "weights": "a", "state": "b"}, {"step": 1, "weights": "c", "state": "d"}]
    text = "".join(json.dumps(line) + "\n" for line in lines) + '{"step": 2, "wei'
    (tmp_path / "checkpoints/fingerprints.jsonl").write_text(text)
    CheckpointRecord(step=2, weights="e", state="f").write(tmp_path / "checkpoints/ckpt-2.json")
    (tmp_path / "checkpoints/ckpt-3.json").write_text("[]")
    records = [
        {"step": 1, "split": "train", "training_loss": 0.5},
        {"step": 1, "split": "validation", "training_loss": 0.7},
        {"step": 2, "split": "train", "training_loss": None},
    ]
    (tmp_path / "metrics.jsonl").write_text(
        "".join(json.dumps(record) + "\n" for record in records)
    )
    history = read_history(tmp_path)
    # The process was killed between writing the checkpoint of step 2 and its line.
    assert history.fingerprints == {1: Fingerprints("c", "d"), 2: Fingerprints("e", "f")}
    assert history.losses == {1: 0.5, 2: None}
    assert (history.attempts, history.mode, history.ends) == ((), "train_and_eval", [])


def test_history_reads_mode_ends_and_override_from_attempts(tmp_path):
    attempts = [
        {"mode": "train", "outcome": "done", "step": 7},
        {"mode": "train_and_eval", "outcome": "Diverged: …", "step": 9},
        {"mode": "eval", "outcome": "done", "argv": ["runner", "--resume", "override"]},
        "none",
    ]
    (tmp_path / "run.json").write_text(json.dumps({"attempts": attempts}))
    history = read_history(tmp_path)
    assert (history.mode, history.ends, history.is_overridden) == ("train_and_eval", [7], True)
    assert len(history.attempts) == 3
