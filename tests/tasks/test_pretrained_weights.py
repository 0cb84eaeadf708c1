"""Published weights of Keras, and checkpoints of Model Garden, fit the networks exactly."""

import inspect

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from official.vision.modeling.backbones.resnet import ResNet
from official.vision.modeling.classification_model import ClassificationModel

from orbit_runner.data.images import NATURAL_MEAN, NATURAL_STD
from orbit_runner.datasets.download import DownloadError
from orbit_runner.models.catalog import APPLICATIONS
from orbit_runner.models.configs import ApplicationConfig, ResNetConfig
from orbit_runner.models.imagenet import keras_application, resnet
from orbit_runner.models.layers import ImageInput
from orbit_runner.state.initial_weights import initialize
from orbit_runner.tasks.image_classification.task import ImageClassificationTask
from orbit_runner.tasks.initial_weights import load_weights
from tests.support.toy import Notes, config_of

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (2, 80, 80, 3)).astype(np.uint8)
_BASE = {
    "task.name": "image_classification",
    "task.model.name": "application",
    "task.model.application": "MobileNet",
    "task.model.input_size": [32, 32, 3],
    "task.train_data.source": "digits",
    "task.train_data.global_batch_size": 8,
    "task.validation_data.source": "digits",
    "task.validation_data.global_batch_size": 8,
    "trainer.train_steps": 1,
    "trainer.optimizer_config.optimizer.type": "sgd",
    "trainer.optimizer_config.learning_rate.type": "constant",
    "trainer.optimizer_config.learning_rate.constant.learning_rate": 0.1,
}


def _randomize(model):
    for variable in model.variables:
        is_scale = variable.name.partition(":")[0].endswith(("variance", "gamma"))
        value = RNG.normal(1.0 if is_scale else 0.0, 0.05, variable.shape)
        variable.assign(np.abs(value) if is_scale else value)


def _application(name, size):
    make = getattr(tf_keras.applications, name)
    return make(include_top=False, weights=None, input_shape=(size, size, 3))


def _preprocess(name):
    module = inspect.getmodule(inspect.unwrap(getattr(tf_keras.applications, name)))
    return module.preprocess_input


@pytest.mark.slow
# One for each kind of `preprocess_input`.
@pytest.mark.parametrize("name", ["MobileNet", "DenseNet121", "VGG16", "MobileNetV3Small"])
def test_features_are_those_of_the_application_on_preprocessed_pixels(name):
    published = _application(name, 80)
    _randomize(published)
    expected = published(_preprocess(name)(PIXELS.astype(np.float32)), training=False)

    pixels = APPLICATIONS[name].pixels
    images = ImageInput((80, 80, 3), 7, pixels.mean, pixels.std)
    model = keras_application(ApplicationConfig(application=name), images)
    model.get_layer("backbone").set_weights(published.get_weights())

    features = tf_keras.Model(model.inputs, model.get_layer("pool").input)(PIXELS)
    np.testing.assert_allclose(features, expected, rtol=1e-3, atol=1e-5 * np.abs(expected).max())
    assert np.ptp(expected) > 0.01
    assert model.output_shape == (None, 7)
    tf_keras.saving.serialize_keras_object(model)  # As for a `.keras` file.


def test_every_application_with_weights_is_offered_or_left_out_with_a_reason():
    functions = {
        name
        for name, value in inspect.getmembers(tf_keras.applications, callable)
        if "include_top" in inspect.signature(value).parameters
    }
    assert functions - {*APPLICATIONS} == {f"EfficientNetB{size}" for size in range(8)}


@pytest.fixture(scope="module")
def garden(tmp_path_factory):
    """A network of Model Garden with ten classes, and its checkpoint, as its trainer writes it."""
    specs = tf_keras.layers.InputSpec(shape=[None, 80, 80, 3])
    backbone = ResNet(18, specs, norm_momentum=0.9, norm_epsilon=1e-5)
    model = ClassificationModel(backbone, 10, input_specs=specs)
    _randomize(model)
    checkpoint = tf.train.Checkpoint(
        model=model,
        optimizer=tf_keras.optimizers.SGD(0.1, momentum=0.9),
        global_step=tf.Variable(3),
        **model.checkpoint_items,
    )
    return model, checkpoint.save(str(tmp_path_factory.mktemp("garden") / "ckpt"))


@pytest.mark.slow
@pytest.mark.parametrize(("classes", "ignored"), [(10, []), (7, ["logits"])])
def test_checkpoint_of_model_garden_fits_and_other_classes_get_a_new_head(garden, classes, ignored):
    published, path = garden
    mean, std = NATURAL_MEAN, NATURAL_STD
    images = ImageInput((80, 80, 3), classes, mean, std)
    model = resnet(ResNetConfig(depth=18), images)
    head = model.get_layer("logits").get_weights()

    loaded = load_weights(model, path, ignored)

    normalized = (PIXELS.astype(np.float32) - np.float32(mean)) / np.float32(std)
    features = model.get_layer("backbone")(normalized)["5"]
    np.testing.assert_array_equal(features, published.backbone(normalized)["5"])
    assert np.ptp(features) > 0.01
    if classes == 10:
        np.testing.assert_array_equal(model(PIXELS), published(normalized))
        assert len(loaded.variables) == len(model.variables)
    else:
        for value, before in zip(model.get_layer("logits").get_weights(), head, strict=True):
            np.testing.assert_array_equal(value, before)
        assert len(loaded.variables) == len(model.variables) - 2


@pytest.fixture(scope="module")
def weights_file(tmp_path_factory):
    """A weights file of a MobileNet, and its values."""
    network = _application("MobileNet", 32)
    _randomize(network)
    path = tmp_path_factory.mktemp("weights") / "mobilenet.h5"
    network.save_weights(path)
    return path, network.get_weights()


@pytest.fixture
def keras_cache(tmp_path, monkeypatch):
    """The file of the published weights in the empty cache of Keras; nothing can be downloaded."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    path = tmp_path / "home/.keras/models/mobilenet_1_0_224_tf_no_top.h5"
    path.parent.mkdir(parents=True)
    return path


def _task(run=None):
    config = config_of({**_BASE, "task.model.weights": "imagenet"})
    return ImageClassificationTask(config.task, logging_dir=run and str(run))


@pytest.mark.slow
def test_backbone_has_the_published_weights_and_the_head_is_new(
    keras_cache, tmp_path, weights_file
):
    path, values = weights_file
    keras_cache.write_bytes(path.read_bytes())
    task = _task(tmp_path / "run")
    model = task.build_model()
    notes = Notes()

    with notes.listening_scope():
        initialize(task, model)

    assert notes.notes == [
        f"loaded {len(values)} of the model's {len(values) + 2} variables from "
        "tf_keras.applications.MobileNet; these keep their initial values:\n"
        "  logits/kernel\n  logits/bias"
    ]
    for value, expected in zip(model.get_layer("backbone").get_weights(), values, strict=True):
        np.testing.assert_array_equal(value, expected)
    assert model.output_shape == (None, 10)
    keras_cache.unlink()
    _task(tmp_path / "run").build_model()  # As for a checkpoint, or an export.


@pytest.mark.slow
@pytest.mark.usefixtures("keras_cache")
def test_without_network_the_message_says_where_to_put_the_file():
    task = _task()
    model = task.build_model()
    with pytest.raises(DownloadError) as caught:
        task.load_pretrained(model)
    text = str(caught.value)
    assert text.startswith("task.model.weights: MobileNet: URL fetch failure on https://")
    assert "mobilenet_1_0_224_tf_no_top.h5" in text
    assert "~/.keras/models" in text
