"""`task.model.weights`: published weights fit exactly, and what does not fit is reported."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from official.vision.modeling.backbones.resnet import ResNet
from official.vision.modeling.classification_model import ClassificationModel

from orbit_runner.datasets.download import DownloadError
from orbit_runner.models.catalog import APPLICATIONS, MODEL_GARDEN_PIXELS, RESNETS
from orbit_runner.models.imagenet import keras_application, resnet
from orbit_runner.run_directory.data_record import fingerprint_of
from orbit_runner.state.initial_weights import initialize
from orbit_runner.tasks.image_classification.pretrained import initial_weights
from orbit_runner.tasks.image_classification.task import ImageClassificationTask
from orbit_runner.tasks.initial_weights import load_keras_weights, load_weights
from tests.support.problems import raises
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


def _randomize(model: tf_keras.Model) -> None:
    for variable in model.variables:
        is_scale = variable.name.partition(":")[0].endswith(("variance", "gamma"))
        value = RNG.normal(1.0 if is_scale else 0.0, 0.05, variable.shape)
        variable.assign(np.abs(value) if is_scale else value)


def _application(name: str, size: int) -> tf_keras.Model:
    make = getattr(tf_keras.applications, name)
    return make(include_top=False, weights=None, input_shape=(size, size, 3))


def _preprocess(name: str) -> Any:
    module = inspect.getmodule(inspect.unwrap(getattr(tf_keras.applications, name)))
    return module.preprocess_input  # type: ignore[union-attr]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["MobileNet", "DenseNet121", "ResNet50", "VGG16", "MobileNetV3Small", "Xception"]
)
def test_features_are_those_of_the_application_on_preprocessed_pixels(
    name: str, tmp_path: Path
) -> None:
    published = _application(name, 80)
    _randomize(published)
    published.save_weights(tmp_path / "published.h5")
    expected = published(_preprocess(name)(PIXELS.astype(np.float32)), training=False)

    pixels = APPLICATIONS[name].pixels
    model = keras_application(
        application=name, input_shape=(80, 80, 3), num_classes=7, mean=pixels.mean, std=pixels.std
    )
    load_keras_weights(model.get_layer("backbone"), tmp_path / "published.h5", "task.model.weights")

    features = tf_keras.Model(model.inputs, model.get_layer("pool").input)(PIXELS)
    np.testing.assert_allclose(features, expected, rtol=1e-3, atol=1e-5 * np.abs(expected).max())
    assert np.ptp(expected) > 0.01
    assert model.output_shape == (None, 7)
    tf_keras.saving.serialize_keras_object(model)  # As for a `.keras` file.


def test_every_application_with_weights_is_offered_or_left_out_with_a_reason() -> None:
    functions = {
        name
        for name, value in inspect.getmembers(tf_keras.applications, callable)
        if "include_top" in inspect.signature(value).parameters
    }
    assert functions - {*APPLICATIONS} == {f"EfficientNetB{size}" for size in range(8)}


@pytest.fixture(scope="module")
def garden(tmp_path_factory: pytest.TempPathFactory) -> tuple[ClassificationModel, str]:
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
@pytest.mark.parametrize("classes", [10, 7])
def test_checkpoint_of_model_garden_fits_and_other_classes_get_a_new_head(
    garden: tuple[ClassificationModel, str], classes: int
) -> None:
    published, path = garden
    mean, std = MODEL_GARDEN_PIXELS.mean, MODEL_GARDEN_PIXELS.std
    model = resnet(depth=18, input_shape=(80, 80, 3), num_classes=classes, mean=mean, std=std)
    head = model.get_layer("logits").get_weights()

    loaded = load_weights(model, path, may_be_new=["logits"], setting="task.model.weights")

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
def weights_file(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[np.ndarray]]:
    """A weights file of a MobileNet, and its values."""
    network = _application("MobileNet", 32)
    _randomize(network)
    path = tmp_path_factory.mktemp("weights") / "mobilenet.h5"
    network.save_weights(path)
    return path, network.get_weights()


@pytest.fixture
def keras_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the published weights in the empty cache of Keras; nothing can be downloaded."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    path = tmp_path / "home/.keras/models/mobilenet_1_0_224_tf_no_top.h5"
    path.parent.mkdir(parents=True)
    return path


def _task(weights: str | Path, run: Path | None = None, **changes: Any) -> ImageClassificationTask:
    config = config_of({**_BASE, "task.model.weights": str(weights)}, **changes)
    return ImageClassificationTask(config.task, logging_dir=run and str(run))  # type: ignore[arg-type]


@pytest.mark.slow
def test_backbone_has_the_published_weights_and_the_head_is_new(
    keras_cache: Path, tmp_path: Path, weights_file: tuple[Path, list[np.ndarray]]
) -> None:
    path, values = weights_file
    keras_cache.write_bytes(path.read_bytes())
    task = _task("imagenet", tmp_path / "run")
    model = task.build_model()
    notes = Notes()

    with notes.listening_scope():
        loaded = initialize(task, model)

    assert loaded is not None
    assert notes.notes == [
        f"loaded {len(values)} of the model's {len(values) + 2} variables from "
        "tf_keras.applications.MobileNet; these keep their initial values:\n"
        "  logits/kernel\n  logits/bias"
    ]
    for value, expected in zip(model.get_layer("backbone").get_weights(), values, strict=True):
        np.testing.assert_array_equal(value, expected)
    assert model.output_shape == (None, 10)
    keras_cache.unlink()
    _task("imagenet", tmp_path / "run").build_model()  # As for a checkpoint, or an export.


@pytest.mark.slow
@pytest.mark.usefixtures("keras_cache")
def test_without_network_the_message_says_where_to_put_the_file() -> None:
    task = _task("imagenet")
    model = task.build_model()
    with pytest.raises(DownloadError) as caught:
        task.load_pretrained(model)
    text = str(caught.value)
    assert text.startswith("task.model.weights: MobileNet: URL fetch failure on https://")
    assert "mobilenet_1_0_224_tf_no_top.h5" in text
    assert "~/.keras/models" in text


def _resnet_task(weights: str) -> ImageClassificationTask:
    base = {name: value for name, value in _BASE.items() if name != "task.model.application"}
    changes = {"task.model.name": "resnet", "task.model.depth": 18, "task.model.weights": weights}
    return ImageClassificationTask(config_of({**base, **changes}).task)  # type: ignore[arg-type]


def test_published_checkpoint_is_downloaded_once_or_all_its_addresses_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    there = tmp_path / "resnet18_imagenet"
    there.mkdir()
    files = [there / f"ckpt-1.{ending}" for ending in ("index", "data-00000-of-00001")]
    urls = [file.as_uri() for file in files]
    monkeypatch.setitem(RESNETS, 18, tuple(urls))
    model = _resnet_task("imagenet").task_config.model
    files[0].write_text("index")
    with pytest.raises(DownloadError) as caught:
        initial_weights(model)
    assert str(caught.value).startswith("task.model.weights: file:///")
    assert all(url in str(caught.value) for url in urls)

    files[1].write_text("data")
    path = initial_weights(model)
    for file in files:
        file.unlink()

    again = initial_weights(model)
    assert path == again == tmp_path / "cache/orbit_runner/weights/resnet18_imagenet/ckpt-1"
    found = {file.name: file.read_text() for file in path.parent.iterdir()}
    assert found == {"ckpt-1.index": "index", "ckpt-1.data-00000-of-00001": "data"}


@pytest.mark.parametrize(
    ("content", "code"), [(b"no HDF5", "checkpoint-mismatch"), (None, "missing-file")]
)
def test_file_that_cannot_be_used_is_reported(
    tmp_path: Path, content: bytes | None, code: str
) -> None:
    path = tmp_path / "own.h5"
    if content is not None:
        path.write_bytes(content)
    task = _task(path)
    with raises(code, "task.model.weights"):
        task.load_pretrained(task.build_model())


@pytest.mark.slow
def test_checkpoint_of_a_path_initializes_a_resnet(
    garden: tuple[ClassificationModel, str],
) -> None:
    task = _resnet_task(garden[1])
    model = task.build_model()

    loaded = initialize(task, model)

    assert loaded is not None
    assert len(loaded.variables) == len(model.variables)
    normalize = model.get_layer("normalize")
    assert (normalize.mean, normalize.std) == (MODEL_GARDEN_PIXELS.mean, MODEL_GARDEN_PIXELS.std)
    assert {*fingerprint_of(task.task_config)} >= {"model.weights"}
