"""How far the run of a trial is, read from files."""

from __future__ import annotations

import json
from pathlib import Path

from orbit_runner.sweep.run_state import RunState, RunStates


def write_run(run: Path, *, evaluated: dict, saved: dict, attempts: list[dict]) -> None:
    (run / "checkpoints").mkdir(parents=True, exist_ok=True)
    records = [
        *({"step": step, "split": "train", "training_loss": 1.0} for step in evaluated),
        *({"step": step, "split": "validation", "accuracy": v} for step, v in evaluated.items()),
    ]
    lines = "".join(f"{json.dumps(record)}\n" for record in records)
    (run / "metrics.jsonl").write_text(lines + '{"step": 99, "spl')
    trail = [{"step": step, "weights": text, "state": ""} for step, text in saved.items()]
    (run / "checkpoints" / "fingerprints.jsonl").write_text(
        "".join(f"{json.dumps(record)}\n" for record in trail)
    )
    (run / "run.json").write_text(json.dumps({"attempts": attempts}))


def test_directory_that_does_not_exist_has_no_results(tmp_path):
    assert RunStates().read(tmp_path / "a", tmp_path / "f") == RunState()


def test_rung_is_reached_after_its_evaluation_and_checkpoint(tmp_path):
    write_run(tmp_path, evaluated={20: 0.5, 40: None}, saved={20: "a"}, attempts=[])
    state = RunStates().read(tmp_path, tmp_path / "f")

    assert state.has_reached(20)
    assert not state.has_reached(40)
    assert (state.objective(20, "accuracy"), state.objective(40, "accuracy")) == (0.5, None)
    assert state.objective(20, "loss") is None
    assert state.end is None


def test_run_that_stopped_early_has_ended(tmp_path):
    early = {"outcome": "done", "step": 30, "train_steps": 60}
    write_run(tmp_path, evaluated={30: 0.5}, saved={30: "a"}, attempts=[early])
    state = RunStates().read(tmp_path, tmp_path / "f")

    assert (state.end, state.early_end(40), state.early_end(20)) == (30, 30, None)


def test_last_start_decides_whether_a_run_diverged(tmp_path):
    diverged = {"outcome": "Diverged: training diverged"}
    states = RunStates()
    write_run(tmp_path, evaluated={}, saved={}, attempts=[diverged])
    assert states.read(tmp_path, tmp_path / "f").diverged

    write_run(tmp_path, evaluated={}, saved={}, attempts=[diverged, {"outcome": None}])
    assert not states.read(tmp_path, tmp_path / "f").diverged


def test_state_is_read_again_after_a_change(tmp_path):
    states, failure = RunStates(), tmp_path / "failures" / "0000.json"
    run = tmp_path / "run"
    write_run(run, evaluated={20: 0.5}, saved={20: "a"}, attempts=[])
    assert states.read(run, failure).last_evaluation == 20

    write_run(run, evaluated={20: 0.5, 40: 0.6}, saved={20: "a"}, attempts=[])
    failure.parent.mkdir()
    failure.write_text('{"reason": "no space left"}')
    state = states.read(run, failure)
    assert (state.last_evaluation, state.failure) == (40, "no space left")
