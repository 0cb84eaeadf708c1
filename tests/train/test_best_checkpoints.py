"""The k best checkpoints: their files, and what is left of them after kills and rollbacks."""

import hashlib
import json
from pathlib import Path

import pytest
import tensorflow as tf

from orbit_runner.checkpoint.directory import CheckpointFolder, steps_by_rank
from orbit_runner.train.callbacks.base import Callback
from orbit_runner.train.callbacks.best_checkpoint import _STATE, Comparison
from tests.support.configs import keep_best
from tests.support.problems import raises
from tests.support.toy import Notes, run, toy_config

BEST = {
    **keep_best("score", "higher"),
    "trainer__best_checkpoints_to_keep": 3,
    "trainer__train_steps": 16,
    "trainer__validation_interval": 2,
    "trainer__checkpoint_interval": 4,
    "trainer__max_to_keep": 2,
}
CALLBACKS = "orbit_runner.train.callbacks.own_callbacks"
# The score of the evaluation at each step.
SCORES = {2: 5.0, 4: 7.0, 6: 6.0, 8: 8.0, 10: 1.0, 12: 7.0, 14: float("nan"), 16: 6.5}
RANKED = [8, 4, 12]


class Killed(BaseException):
    """Ends a run at a point at which a process might be killed."""


class Scores(Callback):
    """Replaces the results of evaluations, before other callbacks see them."""

    def __init__(self, scores, kill_at=0):
        self.scores, self.kill_at = scores, kill_at

    def on_run_begin(self, run):
        evaluate = run.evaluator.evaluate

        def replaced(num_steps):
            return {**evaluate(num_steps), "score": self.scores[run.step]}

        run.evaluator.evaluate = replaced

    def on_evaluate(self, run, logs):
        if run.step == self.kill_at:
            raise Killed


@pytest.fixture(autouse=True)
def known_metric(monkeypatch):
    monkeypatch.setattr(f"{CALLBACKS}._require_metric", lambda *names: None)


def _train(folder, *callbacks, notes=None, **changes):
    run(toy_config(**{**BEST, **changes}), folder, callbacks=callbacks, notes=notes)


def _best(folder):
    return CheckpointFolder(folder / "best", name="best")


def _content(folder):
    """Returns all files of the best checkpoints, by name; of records, the fingerprints."""
    content = {}
    for path in sorted((folder / "best").iterdir()):
        if path.suffix == ".json" and path.name != "info.json":
            record = json.loads(path.read_text())
            content[path.name] = (record["weights"], record["step"], record["result"])
        elif ".data" in path.name:
            content[path.name] = ""  # Its tensors have a fingerprint in the record.
        else:
            content[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return {name: value for name, value in content.items() if not name.endswith(".index")}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{CALLBACKS}._require_metric", lambda *names: None)
        _train(folder, Scores(SCORES))
    return folder


@pytest.mark.slow
def test_best_results_are_kept_with_their_metrics(whole):
    folder = _best(whole)
    assert folder.steps() == sorted(RANKED)
    assert steps_by_rank(folder) == RANKED[::-1]
    assert tf.train.latest_checkpoint(str(whole / "best")) == str(whole / "best" / "best-8")
    info = json.loads((whole / "best" / "info.json").read_text())
    assert (info["best_ckpt_global_step"], info["score"]) == (8, 8.0)
    for step in RANKED:
        record = folder.record(step)
        assert record.result["score"] == SCORES[step]
        assert {"error", "validation_loss"} <= record.result.keys()
        assert folder.problem(step) is None


def test_ranking_is_part_of_the_checkpoints_of_the_run(whole):
    record = CheckpointFolder(whole / "checkpoints").record(16)
    assert record.callbacks[_STATE] == {
        "metric": "higher score",
        "ranking": [[8.0, 8], [7.0, 4], [7.0, 12]],
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "kill_at"),
    [
        ("before the deletion", 8),
        ("before the deletion", 12),
        ("before info.json", 4),
        ("before info.json", 8),
        ("before the save", 6),
        ("before the save", 16),
    ],
)
def test_best_checkpoints_are_the_same_after_a_kill(where, kill_at, whole, tmp_path, monkeypatch):
    def kill(self, *arguments):
        is_best = "best" in str(getattr(self, "path", getattr(self, "_info", "")))
        if is_best and max(_best(tmp_path).committed_steps(), default=0) == kill_at:
            raise Killed
        original(self, *arguments)

    with monkeypatch.context() as patch:
        if where == "before the deletion":
            original = CheckpointFolder.remove_others
            patch.setattr(CheckpointFolder, "remove_others", kill)
        elif where == "before info.json":
            from orbit_runner.train.callbacks.best_checkpoint import BestCheckpoint

            original = BestCheckpoint._write_info
            patch.setattr(BestCheckpoint, "_write_info", kill)
        scores = Scores(SCORES, kill_at=kill_at if where == "before the save" else 0)
        with pytest.raises(Killed):
            _train(tmp_path, scores)
    _train(tmp_path, Scores(SCORES))
    assert _content(tmp_path) == _content(whole)


@pytest.mark.slow
def test_resumed_run_has_the_files_that_its_checkpoint_ranks(tmp_path):
    with pytest.raises(Killed):
        _train(tmp_path, Scores(SCORES, kill_at=6))
    # The checkpoint of step 4 ranks 4 and 2; 6 is of a future that may not come again.
    assert _best(tmp_path).steps() == [2, 4, 6]
    with pytest.raises(Killed):
        _train(tmp_path, Scores({**SCORES, 6: 0.0}, kill_at=6), trainer__best_checkpoints_to_keep=2)
    assert _best(tmp_path).steps() == [2, 4]
    _train(tmp_path, Scores({**SCORES, 6: 0.0}))
    assert _best(tmp_path).steps() == sorted(RANKED)


@pytest.mark.slow
def test_checkpoint_that_was_replaced_after_the_last_save_is_still_there(tmp_path):
    keep = {"trainer__best_checkpoints_to_keep": 2}
    with pytest.raises(Killed):
        _train(tmp_path, Scores({2: 5.0, 4: 7.0, 6: 8.0, 8: 9.0}, kill_at=6), **keep)
    assert _best(tmp_path).steps() == [2, 4, 6]
    # The run continues differently: 6 is not better anymore, so 2 is among the best again.
    later = {6: 1.0, 8: 1.0, 10: 1.0, 12: 1.0, 14: 1.0, 16: 1.0}
    _train(tmp_path, Scores(later), **keep)
    assert steps_by_rank(_best(tmp_path)) == [2, 4]
    assert json.loads((tmp_path / "best" / "info.json").read_text())["score"] == 7.0


def test_rollback_restores_the_ranking(tmp_path):
    scores = {2: 5.0, 4: 7.0, 6: 9.0, 8: 1.0, 10: 1.0, 12: 1.0, 14: 1.0, 16: 1.0}

    class After(Scores):
        def on_evaluate(self, run, logs):
            if run.step == 6:
                self.scores[6] = 1.0  # After the rollback.

    notes = Notes()
    _train(
        tmp_path,
        After(scores),
        notes=notes,
        task__nan_from=7,
        trainer__recovery_max_trials=1,
        trainer__best_checkpoints_to_keep=2,
    )
    assert any("returned to step 4" in note for note in notes.notes)
    assert steps_by_rank(_best(tmp_path)) == [2, 4]
    assert json.loads((tmp_path / "best" / "info.json").read_text())["best_ckpt_global_step"] == 4


@pytest.mark.slow
def test_missing_best_checkpoint_is_reported(tmp_path):
    _train(tmp_path, Scores(SCORES), trainer__train_steps=8)
    for path in _best(tmp_path).files(4):
        path.unlink()
    notes = Notes()
    _train(tmp_path, Scores(SCORES), notes=notes)
    assert any(
        "checkpoints that are among the best are missing" in n and "best-4" in n
        for n in notes.notes
    )
    assert _best(tmp_path).steps() == [8, 12]


@pytest.mark.slow
def test_number_of_best_checkpoints_may_change_between_starts(tmp_path):
    for count, last, steps in ((1, 4, [4]), (3, 8, [4, 6, 8]), (2, 12, [4, 8]), (1, 16, [8])):
        settings = {"trainer__best_checkpoints_to_keep": count, "trainer__train_steps": last}
        _train(tmp_path, Scores(SCORES), **settings)
        assert _best(tmp_path).steps() == steps


def test_training_leaves_the_best_checkpoints_of_another_process_alone(tmp_path):
    # In a cluster, the evaluator writes them while the chief trains.
    writing = _best(tmp_path).begin_write(5)
    run(toy_config(**BEST), tmp_path, "train", callbacks=[])
    assert Path(writing).parent.is_dir()


@pytest.mark.slow
def test_evaluating_process_ranks_by_the_files(tmp_path):
    run(toy_config(**BEST), tmp_path, "train", callbacks=[])
    for score in (3.0, 9.0):
        scores = Scores({16: score})
        run(toy_config(**BEST), tmp_path, "continuous_eval", callbacks=[scores])
    record = _best(tmp_path).record(16)
    assert record.result["score"] == 9.0


def test_metric_is_found_in_nested_results():
    logs = {"loss": 1.0, "per_class": {"cat": 0.5}}
    assert Comparison("loss", False).value(logs) == 1.0
    assert Comparison("per_class|cat", True).value(logs) == 0.5


@pytest.mark.parametrize("name", ["accurracy", "per_class|dog", "loss|x"])
def test_missing_metric_in_results_is_an_error(name):
    with raises("unknown-name"):
        Comparison(name, True).value({"loss": 1.0, "accuracy": 2.0, "per_class": {"cat": 0.5}})
