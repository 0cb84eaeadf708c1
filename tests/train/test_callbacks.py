"""Callbacks: when they are called, how they end a run, and that their states are exact."""

import json

import numpy as np
import pytest

from orbit_runner import Callback
from orbit_runner.checkpoint.record import read_record
from orbit_runner.train.stop_requests import StoppedAtStep
from orbit_runner.train.trainer import Trainer
from tests.support.problems import raises
from tests.support.toy import Notes, records, run, toy_config, weights

HERE = "tests.train.test_callbacks"


class Recorder(Callback):
    """Remembers its calls, in the checkpoint too."""

    def __init__(self):
        self.calls = []

    def on_train_begin(self, run):
        self.calls.append(["begin", run.step])

    def on_log(self, run, logs):
        self.calls.append(["log", run.step, sorted(logs)])

    def on_evaluate(self, run, logs):
        self.calls.append(["evaluate", run.step, float(logs["validation_loss"])])

    def on_train_end(self, run):
        self.calls.append(["end", run.step])

    def get_state(self):
        return {"calls": self.calls}

    def set_state(self, state):
        self.calls = state["calls"]


class StopAfter(Callback):
    """Stops at the n-th call of an event; the count is its state."""

    def __init__(self, calls, event="evaluate"):
        self.left, self.event = calls, event

    def on_log(self, run, logs):
        self._count(run, "log")

    def on_evaluate(self, run, logs):
        self._count(run, "evaluate")

    def _count(self, run, event):
        if event == self.event:
            self.left -= 1
            if self.left == 0:
                run.stop(f"enough at step {run.step}")

    def get_state(self):
        return self.left

    def set_state(self, state):
        self.left = state


class OnlyLoops(Callback):
    def on_loop_end(self, run, logs):
        pass


class NotJson(Callback):
    def __init__(self, state):
        self._state = state

    def get_state(self):
        return self._state


def _in_config(*entries, **changes):
    return toy_config(callbacks=json.dumps(entries), **changes)


def test_callback_methods_are_called_at_the_right_steps(tmp_path):
    recorder = Recorder()
    config = toy_config(trainer__validation_interval=10, trainer__summary_interval=4)
    run(config, tmp_path, callbacks=[recorder])
    seen = [call[:2] for call in recorder.calls]
    assert seen[0] == ["begin", 0]
    assert seen[-1] == ["end", 20]
    assert [step for name, step in seen if name == "log"] == [4, 8, 12, 16, 20]
    assert [step for name, step in seen if name == "evaluate"] == [10, 20]
    assert all("training_loss" in call[2] for call in recorder.calls if call[0] == "log")


@pytest.mark.slow
def test_loops_end_at_records_only_if_a_callback_needs_it(tmp_path, monkeypatch):
    """If records are taken inside a loop, callbacks see the weights and the step of its end."""
    calls = []
    monkeypatch.setattr(Trainer, "_build_recorder", lambda self: calls.append(True))
    run(toy_config(), tmp_path / "loops", callbacks=[OnlyLoops()])
    assert calls
    calls.clear()
    run(toy_config(), tmp_path / "records", callbacks=[Recorder()])
    assert not calls


@pytest.mark.parametrize("mode", ["train", "train_and_eval"])
def test_stop_between_two_checkpoints_is_saved_and_final(mode, tmp_path):
    entry = {"class_name": f"{HERE}.StopAfter", "arguments": {"calls": 3, "event": "log"}}
    intervals = {"trainer__checkpoint_interval": 10, "trainer__validation_interval": 10}
    config = _in_config(entry, trainer__summary_interval=2, **intervals)
    notes = Notes()
    model, _ = run(config, tmp_path, mode, notes=notes)
    assert (tmp_path / "checkpoints" / "ckpt-6.index").is_file()
    assert [step for step, _ in notes.evaluations] == ([6] if mode == "train_and_eval" else [])
    assert [record["step"] for record in records(tmp_path, "train")] == [2, 4, 6]

    second_notes = Notes()
    same, _ = run(config, tmp_path, mode, notes=second_notes)
    assert "the run is finished: enough at step 6" in second_notes.notes
    for one, other in zip(weights(model), weights(same), strict=True):
        np.testing.assert_array_equal(one, other)


def test_stopped_run_continues_without_the_callback(tmp_path):
    entry = {"class_name": f"{HERE}.StopAfter", "arguments": {"calls": 2}}
    run(_in_config(entry), tmp_path)
    notes = Notes()
    run(toy_config(), tmp_path, notes=notes, resume="override")
    assert notes.evaluations[-1][0] == 20


@pytest.mark.slow
def test_state_of_each_callback_is_restored_on_resume(tmp_path):
    """Those of one class have a state each; one that is added on resume begins with its own."""
    config = toy_config()
    uninterrupted, parts = Recorder(), Recorder()
    run(config, tmp_path / "whole", callbacks=[uninterrupted])
    first = [Recorder(), StopAfter(100), StopAfter(200)]
    with pytest.raises(StoppedAtStep):
        run(config, tmp_path / "parts", callbacks=first, stop_at_step=10)
    stopping = [StopAfter(1), StopAfter(1), StopAfter(100)]
    run(config, tmp_path / "parts", callbacks=[parts, *stopping])
    assert [call for call in parts.calls if call != ["begin", 10]] == uninterrupted.calls
    assert [callback.left for callback in stopping] == [96, 196, 98]


@pytest.mark.parametrize("step", [0, 21])
def test_step_that_the_run_does_not_reach_is_refused(step, tmp_path):
    with raises("unknown-step", "--stop_at_step"):
        run(toy_config(), tmp_path, stop_at_step=step)
    assert not (tmp_path / "metrics.jsonl").exists()


def test_separate_evaluation_does_not_restore_callback_states(tmp_path):
    run(toy_config(), tmp_path, callbacks=[StopAfter(100)])
    beside, record = StopAfter(7), tmp_path / "checkpoints" / "ckpt-20.json"
    saved = record.read_bytes()
    notes = Notes()
    run(toy_config(), tmp_path, "eval", notes=notes, callbacks=[beside])
    assert beside.left == 6
    assert notes.reasons is None  # Only training is exact or not.
    assert read_record(record).callbacks == {f"{HERE}.StopAfter": 96}
    assert record.read_bytes() == saved


@pytest.mark.parametrize(
    ("entry", "path", "code"),
    [
        ("no_such_module.Callback", "callbacks[0].class_name", "import-failed"),
        (f"{HERE}.StopAftr", "callbacks[0].class_name", "unknown-name"),
        (f"{HERE}.HERE", "callbacks[0].class_name", "import-failed"),
        (f"{HERE}.StopAfter", "callbacks[0].arguments", "bad-arguments"),
        (
            {"class_name": f"{HERE}.OnlyLoops", "arguments": {"every": 3}},
            "callbacks[0].arguments",
            "bad-arguments",
        ),
    ],
)
def test_invalid_callback_in_the_config_is_rejected(entry, path, code, tmp_path):
    with raises(code, path):
        run(_in_config(entry), tmp_path)


@pytest.mark.parametrize("state", [{"weights": np.zeros(2)}, {"best": [{3: 0.5}]}])
def test_callback_state_that_is_not_json_is_rejected(state, tmp_path):
    with raises("wrong-type"):
        run(toy_config(), tmp_path, callbacks=[NotJson(state)])


def test_callback_can_end_continuous_evaluation(tmp_path):
    run(toy_config(), tmp_path, "train")
    waits_for_more = toy_config(trainer__train_steps=100, trainer__continuous_eval_timeout=60)
    notes = Notes()
    run(waits_for_more, tmp_path, "continuous_eval", notes=notes, callbacks=[StopAfter(1)])
    assert [step for step, _ in notes.evaluations] == [20]
