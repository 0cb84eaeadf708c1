"""Examples that the input pipeline of a Model Garden task cannot read."""

import pytest
import tensorflow as tf

from orbit_runner.errors import SettingError
from orbit_runner.model_garden.loading import from_model_garden
from orbit_runner.train.error_messages import error_message_scope
from tests.support.digits import digits_config
from tests.support.official_photos import SmallPhotoTask, photos
from tests.support.official_runs import run_official

_PLACE = "Error in user-defined function passed to MapDataset:1 transformation with iterator: "
_TRAINING = (
    "Graph execution error:\n\nDetected at node ExtractJpegShape defined at (most recent call "
    "last):\n<stack traces unavailable>\n"
    f"{_PLACE}Iterator::Root::Prefetch::Map: Invalid JPEG data, size 8937\n"
    "\t [[{{node ExtractJpegShape}}]]\n\t [[while/body/_1/IteratorGetNext]] [Op:__inference_1]"
)


def _damaged_jpeg(image):
    return tf.constant(tf.io.encode_jpeg(image).numpy()[20:])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("section", "encode"),
    [("train_data", tf.io.encode_png), ("validation_data", _damaged_jpeg)],
)
def test_image_that_the_task_cannot_decode_is_an_error_of_the_data(section, encode, tmp_path):
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.mkdir()
    bad.mkdir()
    params = photos(good)
    getattr(params.task, section).input_path = photos(bad, encode).task.train_data.input_path
    params.trainer.validation_interval = 3

    with pytest.raises(SettingError) as caught:
        run_official(params, tmp_path / "run", task_class=SmallPhotoTask)

    assert (caught.value.code, caught.value.path) == ("bad-record", f"task.{section}.input_path")
    assert "an example cannot be read: Inv" in caught.value.reason


def test_error_of_a_pipeline_has_its_reason(tmp_path):
    config = from_model_garden(photos(tmp_path))

    with pytest.raises(SettingError) as caught, error_message_scope(config, "validation_data"):
        raise tf.errors.InvalidArgumentError(None, None, _TRAINING)

    assert caught.value.path == "task.validation_data.input_path"
    assert "cannot be read: Invalid JPEG data, size 8937\n" in caught.value.reason


def test_other_errors_are_raised_as_they_are(tmp_path):
    config = from_model_garden(photos(tmp_path))
    step = _TRAINING.replace("IteratorGetNext", "matmul")
    for settings, message in ((config, step), (digits_config(), _TRAINING)):
        error = tf.errors.InvalidArgumentError(None, None, message)
        with pytest.raises(tf.errors.InvalidArgumentError), error_message_scope(settings):
            raise error
