"""Variables that a task loads into a new model are counted; loading none is an error."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from official.core import base_task

from orbit_runner.errors import SettingError
from orbit_runner.state.initial_weights import initialize
from tests.support.toy import Notes, ToyConfig, ToyTask


class _Official(ToyTask):
    """Loads weights as Model Garden's tasks do."""

    initialize = base_task.Task.initialize


class _Part(ToyTask):
    """Loads a part, and ignores missing variables."""

    def initialize(self, model):
        part = tf.train.Checkpoint(norm=model.layers[1])
        part.read(self.task_config.init_checkpoint).expect_partial()


class _ByHand(ToyTask):
    """Sets weights without a TensorFlow checkpoint."""

    def initialize(self, model):
        model.layers[-1].set_weights([np.full([3, 1], 5.0)])


@pytest.fixture(scope="module")
def checkpoint_path(tmp_path_factory):
    """The path of a checkpoint of a model with batch norm and its initial weights."""
    model = ToyTask(ToyConfig(batch_norm=True)).build_model()
    folder = tmp_path_factory.mktemp("made")
    norm = model.layers[1]
    return Path(tf.train.Checkpoint(model=model, norm=norm).save(str(folder / "ckpt")))


def _initialized(task_class, path, **changes):
    notes, config = Notes(), ToyConfig(init_checkpoint=str(path), **changes)
    task = task_class(config)
    model = task.build_model()
    with notes.listening_scope():
        initialize(task, model)
    return model, notes.notes


@pytest.mark.parametrize("task_class", [_Official, ToyTask])
def test_all_loaded_variables_are_counted(task_class, checkpoint_path):
    for path in (checkpoint_path, checkpoint_path.parent):
        # Its moving averages equal those of any new model.
        _, notes = _initialized(task_class, path, batch_norm=True)
        assert notes == [f"loaded 5 of the model's 5 variables from {path}"]


def test_note_names_variables_that_keep_their_initial_values(checkpoint_path):
    _, (note,) = _initialized(_Part, checkpoint_path, batch_norm=True)
    assert note.startswith("loaded 4 of the model's 5 variables")
    assert note.endswith("these keep their initial values:\n  w/kernel")


def test_weights_set_without_a_checkpoint_are_counted(checkpoint_path):
    model, (note,) = _initialized(_ByHand, checkpoint_path)
    np.testing.assert_array_equal(model.get_weights()[0], [[5.0]] * 3)
    assert note.startswith("loaded 1 of the model's 1 variables")


def test_no_note_is_shown_without_an_initial_checkpoint():
    assert _initialized(_Official, "")[1] == []


def _refused(task_class, path, **changes):
    with pytest.raises(SettingError) as caught:
        _initialized(task_class, path, **changes)
    assert caught.value.path == "task.init_checkpoint"
    return caught.value.reason


def test_checkpoint_without_variables_of_the_model_is_rejected(tmp_path):
    path = tf.train.Checkpoint(other=tf.Variable(1.0)).save(str(tmp_path / "ckpt"))
    assert "contains none of the model's 5 variables" in _refused(
        _Part, Path(path), batch_norm=True
    )


@pytest.mark.parametrize("task_class", [_Official, _Part])
def test_path_without_a_checkpoint_is_rejected(task_class, tmp_path):
    for path in (tmp_path, tmp_path / "ckpt-7"):
        assert f"there is no checkpoint at {str(path)!r}" in _refused(task_class, path)


def test_checkpoint_of_another_model_is_rejected(checkpoint_path, tmp_path):
    reason = _refused(_Official, checkpoint_path, batch_norm=True, outputs=2)
    assert "does not fit the model" in reason
    model = ToyTask(ToyConfig()).build_model()
    path = Path(tf.train.Checkpoint(model=model.layers[-1]).save(str(tmp_path / "ckpt")))
    assert "loaded 0 of the model's 1 variables; not loaded:\n  w/kernel" in _refused(
        _Official, path
    )
