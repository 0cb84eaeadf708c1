"""What `run_experiment` restores for a config of Model Garden, compared with its own runner."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
import tf_keras
from official.core import task_factory, train_utils
from official.core import train_lib as official_train_lib
from official.utils.testing import mock_task

from orbit_runner import train_lib
from tests.support.garden import mock_bias
from tests.support.problems import raises
from tests.support.toy import Notes

SETTINGS: dict[str, Any] = {
    "trainer": {
        "checkpoint_interval": 10,
        "steps_per_loop": 10,
        "summary_interval": 10,
        "train_steps": 20,
        "validation_steps": 5,
        "optimizer_config": {"optimizer": {"type": "sgd"}, "learning_rate": {"type": "constant"}},
    },
    "runtime": {"distribution_strategy": "off"},
}


def parsed(**trainer: Any) -> Any:
    settings = {**SETTINGS, "trainer": {**SETTINGS["trainer"], **trainer}}
    options = train_utils.ParseConfigOptions("mock", [], params_override=json.dumps(settings))
    return train_utils.parse_configuration(options, lock_return=False, print_return=False)


def train(
    runner: Any, params: Any, model_dir: Path, notes: Notes | None = None, **kwargs: Any
) -> float:
    with notes.listening_scope() if notes is not None else contextlib.nullcontext():
        return _train(runner, params, model_dir, **kwargs)


def _train(runner: Any, params: Any, model_dir: Path, **kwargs: Any) -> float:
    tf_keras.backend.clear_session()
    task = task_factory.get_task(params.task)
    model, _ = runner(None, task, "train", params, str(model_dir), **kwargs)
    return mock_bias(model)


def test_empty_init_checkpoint_directory_starts_from_scratch(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    params = parsed()
    params.task.init_checkpoint = str(tmp_path / "empty")
    notes = Notes()
    found = train(train_lib.run_experiment, params, tmp_path / "a", notes=notes)
    assert found == train(official_train_lib.run_experiment, params, tmp_path / "b")
    assert any("there is no checkpoint in the directory" in note for note in notes.notes)
    params.task.init_checkpoint = str(tmp_path / "missing")
    with raises("no-checkpoint", "task.init_checkpoint"):
        train(train_lib.run_experiment, params, tmp_path / "c")


@pytest.mark.slow
def test_task_that_requires_an_init_checkpoint_is_rejected_without_one(tmp_path: Path) -> None:
    class Strict(mock_task.MockTask):
        def initialize(self, model: tf_keras.Model) -> None:
            path = tf.train.latest_checkpoint(self.task_config.init_checkpoint)
            tf.train.Checkpoint(model=model).read(path).assert_existing_objects_matched()

    params = parsed()
    params.task.init_checkpoint = str(tmp_path)
    with raises("no-checkpoint", "task.init_checkpoint"):
        train_lib.run_experiment(None, Strict(params.task), "train", params, str(tmp_path / "run"))
