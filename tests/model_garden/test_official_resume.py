"""Input pipelines that cannot start in the middle, in runs that were killed and resumed."""

import shutil

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.checkpoint.fingerprint import weights_fingerprint
from orbit_runner.config.schema.data import resolve_data_config
from orbit_runner.determinism.numerics import configure_numerics
from orbit_runner.model_garden.loading import from_model_garden
from orbit_runner.model_garden.task_adapter import ReplayedDataset, repeatable_draws_scope
from orbit_runner.tasks.adapter import adapt, build_task
from orbit_runner.train.inputs.distribute import distribute
from orbit_runner.utils.log import PlainMessages, log_scope
from tests.support.official_photos import SmallPhotoTask, photos
from tests.support.official_runs import run_official
from tests.support.official_toys import LineTask, line, lines
from tests.support.toy import Notes, make_strategy


def _killed_at_3(whole, folder):
    """Copies a run as if it had ended right after saving its checkpoint of step 3."""
    shutil.copytree(whole, folder)
    for path in (folder / "checkpoints").glob("ckpt-6*"):
        path.unlink()
    (folder / "checkpoints" / "checkpoint").unlink()
    return folder


class _Late(tf_keras.Model):
    """Creates its variables in its first call."""

    def __init__(self):
        super().__init__(name="late")
        self.layer = tf_keras.layers.Dense(1, name="layer")

    def call(self, inputs):
        return self.layer(inputs)


class _LateTask(LineTask):
    def build_model(self):
        return _Late()


_TASKS = {"photos": SmallPhotoTask, "late, mirrored2": _LateTask}


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["line", "late, mirrored2", "lines", "photos"])
def test_killed_and_resumed_run_ends_with_the_same_weights(name, tmp_path):
    task_class = _TASKS.get(name)
    strategy = "mirrored2" if "mirrored2" in name else "one_device"
    params = {"lines": lines, "photos": lambda: photos(tmp_path)}.get(name, line)()
    verdict = Notes()
    settings = {"mode": "train", "strategy": strategy, "task_class": task_class}
    model, _ = run_official(params, tmp_path / "whole", notes=verdict, **settings)
    fingerprint = weights_fingerprint(model)

    folder = _killed_at_3(tmp_path / "whole", tmp_path / "killed")
    model, _ = run_official(params, folder, notes=verdict, **settings)
    assert any("restored step 3" in note for note in verdict.notes)
    assert weights_fingerprint(model) == fingerprint
    assert verdict.reasons == []


@pytest.mark.slow
def test_resuming_without_input_replay_is_reported_as_inexact(tmp_path):
    verdict = Notes()
    settings = {"mode": "train", "notes": verdict, "replay_inputs": False}
    model, _ = run_official(line(), tmp_path / "whole", **settings)
    fingerprint = weights_fingerprint(model)
    folder = _killed_at_3(tmp_path / "whole", tmp_path / "killed")
    model, _ = run_official(line(), folder, **settings)

    assert weights_fingerprint(model) != fingerprint
    assert verdict.reasons == ["the task's input pipeline starts over when a run is resumed"]


def _batches(data, steps):
    iterator = iter(data)
    return [next(iterator)[1].numpy() for _ in range(steps)]


def _line_data(start, **settings):
    config = from_model_garden(line())
    data = resolve_data_config(config.for_task.task.train_data, config.runtime)
    strategy = make_strategy("one_device")
    return distribute(
        strategy, adapt(build_task(config, None)), data, config.runtime, start, **settings
    )


def test_batches_after_a_later_start_match_an_uninterrupted_pipeline():
    configure_numerics(from_model_garden(line()).runtime)
    tf.random.set_seed(99)  # Earlier draws must not matter.
    all_batches = _batches(_line_data(0), 5)
    for start in (1, 2, 4):
        tf.random.uniform([])
        rest = _batches(_line_data(start), 5 - start)
        np.testing.assert_array_equal(rest, all_batches[start:])
    assert len({batch.tobytes() for batch in all_batches}) == 5


def test_random_crops_without_a_seed_are_repeatable():
    def crops(seed):
        box = tf.constant([[[0.0, 0.0, 1.0, 1.0]]])
        with repeatable_draws_scope(seed, 0):
            data = tf.data.Dataset.range(3).map(
                lambda _: tf.image.sample_distorted_bounding_box([50, 50, 3], box)[0]
            )
        return [offset.tolist() for offset in data.as_numpy_iterator()]

    configure_numerics(from_model_garden(line()).runtime)
    assert crops(1) == crops(1)
    assert crops(1) != crops(2)
    with pytest.raises(ValueError, match="non-zero seed"):
        tf.image.sample_distorted_bounding_box([50, 50, 3], tf.zeros([1, 1, 4]))


def test_random_ops_with_control_dependencies_are_repeatable():
    def drawn(element):
        with tf.control_dependencies([element]):  # as RetinaNet's parser does
            zero = tf.constant(0.0)
        return tf.random.uniform([]) + zero

    def draws():
        with repeatable_draws_scope(1, 0):
            data = tf.data.Dataset.range(4).map(drawn, num_parallel_calls=2)
        return [float(draw) for draw in data.as_numpy_iterator()]

    configure_numerics(from_model_garden(line()).runtime)
    assert draws() == draws()


def test_input_replay_is_reported():
    messages = []
    data = tf.data.Dataset.range(9)
    with log_scope(PlainMessages(messages.append)):
        assert int(next(iter(ReplayedDataset(data.skip(4), 5)))) == 5
    (text,) = messages
    assert text.startswith("replaying the input of 5 steps")
    assert "trainer.replay_inputs" in text
