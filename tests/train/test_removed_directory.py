"""A run directory that is removed during training ends the run, whenever that happens."""

import shutil

import pytest

from orbit_runner import Callback
from orbit_runner.run_directory.run_lock import RunDirectoryRemoved
from tests.support.problems import raises
from tests.support.toy import run, toy_config


class RemoveAt(Callback):
    """Removes the run directory, or part of it, at the n-th call of an event."""

    def __init__(self, event, call, part=""):
        self.event, self.left, self.part = event, call, part

    def on_loop_end(self, run, logs):
        self._count(run, "loop")

    def on_evaluate(self, run, logs):
        self._count(run, "evaluation")

    def on_train_end(self, run):
        self._count(run, "end")

    def _count(self, run, event):
        self.left -= event == self.event
        if event == self.event and self.left == 0:
            path = run.model_dir / self.part
            path.unlink() if path.is_file() else shutil.rmtree(path)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("mode", "event", "call"),
    [
        ("train_and_eval", "loop", 1),
        ("train_and_eval", "evaluation", 4),
        ("train_and_eval", "end", 1),
        ("train", "loop", 4),
        ("train_and_post_eval", "evaluation", 1),
    ],
)
def test_removed_directory_is_an_error(tmp_path, mode, event, call):
    with raises("run-removed", "--model_dir"):
        run(toy_config(), tmp_path / "a", mode, callbacks=[RemoveAt(event, call)])


@pytest.mark.parametrize("event", ["loop", "evaluation"])
def test_removed_directory_is_noticed_before_another_evaluation(tmp_path, event):
    remove = RemoveAt(event, 1)
    with pytest.raises(RunDirectoryRemoved):
        run(toy_config(trainer__train_steps=1000), tmp_path / "a", callbacks=[remove])
    assert remove.left >= -1


def test_directory_that_was_replaced_is_an_error(tmp_path):
    class Replace(RemoveAt):
        def _count(self, run, event):
            super()._count(run, event)
            run.model_dir.mkdir(exist_ok=True)

    with pytest.raises(RunDirectoryRemoved):
        run(toy_config(), tmp_path / "a", callbacks=[Replace("evaluation", 4)])


def test_removed_lock_file_does_not_end_a_run(tmp_path):
    _, logs = run(toy_config(), tmp_path / "a", callbacks=[RemoveAt("evaluation", 1, ".lock")])
    assert "validation_loss" in logs
