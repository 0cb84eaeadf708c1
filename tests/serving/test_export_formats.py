"""Networks in other formats give the answers of the model, in processes without this package."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.checkpoint.fingerprint import weights_fingerprint
from orbit_runner.checkpoint.latest_checkpoint import AVERAGE, PLAIN, choose_checkpoint
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.datasets.scikit_learn import load_digits
from orbit_runner.errors import RunnerError
from orbit_runner.registry import TASKS
from orbit_runner.serving.examples import training_features, validation_batches
from orbit_runner.serving.export import export_all, write_labels
from orbit_runner.serving.export_check import ExportCheck, Metric, require_close, tolerance_of
from orbit_runner.serving.export_directory import read_exports
from orbit_runner.serving.formats import keras_file, litert, saved_model
from orbit_runner.serving.formats.base import network_formats
from orbit_runner.serving.loader import load_scope
from orbit_runner.serving.network import describe_network
from orbit_runner.tasks.adapter import adapt
from orbit_runner.tasks.keras.label_checks import LossKind
from orbit_runner.tasks.keras.serving import make_serving
from tests.support.digits import cnn_config, digits_config, resnet_config
from tests.support.exported import run_elsewhere
from tests.support.official_photos import SmallPhotoTask, photos
from tests.support.official_runs import run_official
from tests.support.problems import raises
from tests.support.toy import run

LITERT = ("litert", "litert_float16", "litert_int8")
TEST: Any = load_digits(split="test").arrays
IMAGES, LABELS = TEST["image"], TEST["label"]

# Answers of each file, for all images.
_LITERT_ALONE = """
import numpy as np
from ai_edge_litert.interpreter import Interpreter
paths, images = request
for path in paths:
    run = Interpreter(model_path=path).get_signature_runner()
    rows = [run(image=images[n : n + 1])["logits"] for n in range(len(images))]
    answers.append(np.concatenate(rows))
"""
_KERAS_ALONE = """
import tf_keras
paths, images = request
for path in paths:
    model = tf_keras.models.load_model(path)
    answers.append(model(images, training=False).numpy())
"""


class Trained:
    """A trained run; exports it in formats."""

    def __init__(self, config: ExperimentConfig, path: Path) -> None:
        self.config, self.path = config, path
        run(config, path, "train")
        self.task = TASKS.get(config.task.name).load()(config.task)
        self.logits, self.fingerprint = np.zeros(0), ""

    def export(self, to: Path, *formats: str, weights: str = PLAIN, **changes: Any) -> list[Any]:
        choice = choose_checkpoint(self.path, None, "", pytest.fail)
        with load_scope(self.config, self.task, choice, weights) as served:
            self.logits = served.model(IMAGES, training=False).numpy()
            self.fingerprint = weights_fingerprint(served.model)
            task = adapt(self.task)
            return export_all(formats, served, task, self.config, self.path, to, **changes)


@pytest.fixture(scope="module")
def cnn(tmp_path_factory):
    """A small convolutional network that is trained well enough to be quantized."""
    config = cnn_config(
        task__train_data__augment="crop",
        task__model__dropout_rate=0.0,
        trainer__train_steps=150,
        trainer__optimizer_config__ema__average_decay=0.9,
        trainer__optimizer_config__learning_rate__constant__learning_rate=0.01,
    )
    return Trained(config, tmp_path_factory.mktemp("cnn"))


def accuracy(logits: np.ndarray) -> float:
    return float((logits.argmax(axis=-1) == LABELS).mean())


@pytest.mark.slow
def test_litert_files_answer_like_the_model_with_the_interpreter_alone(cnn, tmp_path):
    pytest.importorskip("ai_edge_litert")
    records = cnn.export(tmp_path / "to", *LITERT, weights=AVERAGE)

    assert [Path(export["path"]).name for export in records] == [f"150-{name}" for name in LITERT]
    paths = [Path(export["path"]) / "model.tflite" for export in records]
    request = [*map(str, paths)], IMAGES
    answers, modules = run_elsewhere(_LITERT_ALONE, request, tmp_path)
    assert not {"tensorflow", "tf_keras", "orbit_runner"} & modules
    before = accuracy(cnn.logits)
    assert before > 0.8
    for record, logits, tolerance in zip(records, answers, (1e-5, 1e-2, 0.2), strict=True):
        largest = float(np.abs(cnn.logits).max())
        difference = float(np.abs(logits - cnn.logits).max())
        assert difference <= tolerance * largest
        check = record["check"]
        assert check["difference"] == pytest.approx(difference, abs=1e-5 * largest)
        assert check["relative"] == pytest.approx(difference / largest, abs=1e-5)
        assert check["model_metrics"]["accuracy"] == pytest.approx(before)
        assert check["metrics"]["accuracy"] == pytest.approx(accuracy(logits))
        assert accuracy(logits) >= before - 0.01
        assert check["examples"] == len(IMAGES)
        assert record["fingerprint"] == cnn.fingerprint
    sizes = [export["bytes"] for export in records]
    assert sizes == [path.stat().st_size for path in paths]
    assert sizes[2] < sizes[1] < sizes[0]
    int8 = litert._interpreter(paths[2]).get_tensor_details()
    assert "int8" in {np.dtype(export["dtype"]).name for export in int8}
    # An accurate int8 file differs from the model nevertheless.
    assert records[2]["check"]["difference"] > 1e-3


@pytest.mark.slow
def test_keras_file_equals_the_model_in_a_process_with_tf_keras_alone(cnn, tmp_path):
    (record,) = cnn.export(tmp_path / "to", "keras")
    resnet = TASKS.get("image_classification").load()(resnet_config().task).build_model()
    features = tf.constant(IMAGES)
    logits_of_resnet = resnet(features, training=False)
    network = describe_network(resnet, features, logits_of_resnet)
    keras_file.FORMAT.write(network, tmp_path / "resnet.keras", ())
    paths = [str(Path(record["path"]) / "model.keras"), str(tmp_path / "resnet.keras")]

    answers, modules = run_elsewhere(_KERAS_ALONE, (paths, IMAGES), tmp_path)

    assert "orbit_runner" not in modules
    for logits, expected_logits in zip(answers, (cnn.logits, logits_of_resnet), strict=True):
        np.testing.assert_allclose(logits, expected_logits, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_export_above_the_tolerance_is_refused_and_deleted(cnn, tmp_path):
    with pytest.raises(RunnerError, match=r"litert_float16: an output differs by [\s\S]*is 0; "):
        cnn.export(tmp_path / "to", "keras", "litert_float16", tolerance=0.0)

    assert [path.name for path in (tmp_path / "to").iterdir()] == ["150-keras"]
    assert [record["format"] for record in read_exports(tmp_path, "to")] == ["keras"]


def _check(before: float, after: float, relative: float = 0.05) -> ExportCheck:
    return ExportCheck(
        examples=100,
        difference=1.0,
        relative=relative,
        model_metrics={"m": before},
        metrics={"m": after},
    )


@pytest.mark.parametrize(
    ("name", "check", "metric", "refused"),
    [
        ("litert_int8", _check(0.95, 0.945), Metric("m"), ""),
        ("litert_int8", _check(0.95, 0.99), Metric("m"), ""),
        ("litert_int8", _check(0.95, 0.93), Metric("m"), "m is 0.9300 instead of 0.9500"),
        ("litert_int8", _check(0.95, 0.93), Metric("m", is_higher_better=False), ""),
        ("litert_int8", _check(0.5, 0.52), Metric("m", is_higher_better=False), "m is 0.5200"),
        # In units of the metric if that is above 1.
        ("litert_int8", _check(50.0, 50.4), Metric("m", is_higher_better=False), ""),
        ("litert_int8", _check(50.0, 50.6), Metric("m", is_higher_better=False), "m is 50.6"),
        ("litert_int8", _check(0.9, 0.1), None, ""),
        ("litert_int8", _check(0.9, 0.9, 0.3), None, "differs by 1, which is 0.3 of"),
        ("litert_int8", _check(0.9, float("nan")), Metric("m"), "not a number"),
        # Other formats are judged by their outputs.
        ("litert", _check(0.9, 0.9), Metric("m"), "differs by 1"),
        ("litert", _check(0.9, 0.1, 1e-4), Metric("m"), ""),
        ("litert", _check(0.9, 0.9, float("nan")), Metric("m"), "not a number"),
    ],
)
def test_rule_of_each_format(name, check, metric, refused):
    kind = network_formats()[name]
    limit = tolerance_of(kind, metric)
    if not refused:
        require_close(kind, check, metric, limit)
        return
    with pytest.raises(RunnerError, match=refused):
        require_close(kind, check, metric, limit)


def _network(layer: Any) -> Any:
    inputs = tf_keras.Input([4], name="x")
    model = tf_keras.Model(inputs, layer(inputs))
    features = tf.ones([2, 4])
    return describe_network(model, features, model(features))


def test_ops_that_do_not_convert_are_named_in_one_line(tmp_path):
    network = _network(lambda x: tf.math.igamma(x, x) + tf.math.digamma(x))

    with pytest.raises(RunnerError) as caught:
        litert.FLOAT32.write(network, tmp_path / "model.tflite", ())

    assert str(caught.value).startswith("the network cannot be converted: LiteRT lacks ")
    assert {"Igamma", "Digamma"} <= set(str(caught.value).replace(",", "").split())
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "model.tflite").exists()


class Scale(tf_keras.layers.Layer):
    """A layer that tf_keras does not have."""

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return inputs * 2.0


def test_layers_of_other_packages_cannot_be_in_a_keras_file(tmp_path):
    with raises("export-failed"):
        keras_file.FORMAT.write(_network(Scale()), tmp_path / "model.keras", ())


class Subclassed(tf_keras.Model):
    """A model whose inputs and outputs have no names."""

    def __init__(self) -> None:
        super().__init__()
        self.out = tf_keras.layers.Dense(2)

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        return self.out(inputs)


def test_subclassed_model_is_exported_or_refused_in_one_line(tmp_path):
    model, features = Subclassed(), tf.constant([[1.0, 2.0], [3.0, 4.0]])
    network = describe_network(model, features, model(features))

    litert.FLOAT32.write(network, tmp_path / "model.tflite", ())
    run = litert.FLOAT32.load(tmp_path / "model.tflite", list(network.inputs), network.outputs)
    np.testing.assert_allclose(run([features.numpy()])[0], model(features), rtol=1e-5)
    with raises("export-failed"):
        keras_file.FORMAT.write(network, tmp_path / "model.keras", ())


def _adapted(layer: Any, values: Sequence[Any]) -> Any:
    layer.adapt(tf.constant(values))
    return layer


_LAYERS = tf_keras.layers
LOOKUPS: dict[str, tuple[Any, list[Any]]] = {
    "TextVectorization, adapted": (
        lambda: _adapted(_LAYERS.TextVectorization(output_mode="tf_idf"), ["a b", "b c"]),
        ["b b", "c"],
    ),
    "StringLookup": (lambda: _LAYERS.StringLookup(vocabulary=["a", "b"]), ["b", "c"]),
    "IntegerLookup, adapted": (lambda: _adapted(_LAYERS.IntegerLookup(), [[3], [5]]), [5, 7]),
    "Normalization": (lambda: _adapted(_LAYERS.Normalization(), [[1.0], [3.0]]), [2.0, 9.0]),
}


@pytest.mark.parametrize("name", LOOKUPS)
def test_lookup_layers_are_in_saved_models_and_keras_files(name, tmp_path):
    build, values = LOOKUPS[name]
    features = tf.constant(values)[:, tf.newaxis]
    inputs = tf_keras.Input([1], dtype=features.dtype, name="x")
    hidden = _LAYERS.Flatten()(tf.cast(build()(inputs), tf.float32))
    model = tf_keras.Model(inputs, _LAYERS.Dense(2)(hidden))
    expected = model(features)

    serving = make_serving(model, {"x": ((1,), features.dtype.name)}, {"": LossKind("", "other")})
    saved_model.write(model, serving, tmp_path / "saved")
    loaded = tf.saved_model.load(str(tmp_path / "saved")).signatures["predict"]
    np.testing.assert_allclose(loaded(x=features)["outputs"], expected, rtol=1e-5)

    network = describe_network(model, features, expected)
    keras_file.FORMAT.write(network, tmp_path / "model.keras", ())
    outputs = keras_file.FORMAT.load(tmp_path / "model.keras", (), ())(features)
    np.testing.assert_allclose(outputs, expected, rtol=1e-5)


def test_table_that_the_model_does_not_track_is_refused_in_one_line(tmp_path):
    keys = tf.lookup.KeyValueTensorInitializer(tf.constant(["a"]), tf.constant([1.0]))
    table = tf.lookup.StaticHashTable(keys, 0.0)
    inputs = tf_keras.Input([1], dtype="string", name="x")
    model = tf_keras.Model(inputs, _LAYERS.Lambda(table.lookup)(inputs))
    serving = make_serving(model, {"x": ((1,), "string")}, {"": LossKind("", "other")})

    with raises("export-failed"):
        saved_model.write(model, serving, tmp_path / "saved")


def test_labels_have_one_line_for_each_class(tmp_path):
    assert write_labels(tmp_path, {"class": ["a", "b\nc", "\u00e4"]}) == {
        "labels": {"class": "labels.txt"}
    }
    assert (tmp_path / "labels.txt").read_bytes() == "a\nb c\n\u00e4\n".encode()
    record = write_labels(tmp_path, {"one": ["x"], "two": ["y", "z"]})
    assert record == {"labels": {"one": "labels_one.txt", "two": "labels_two.txt"}}
    assert (tmp_path / "labels_two.txt").read_text() == "y\nz\n"
    assert write_labels(tmp_path, {}) == {}


def _rows(arrays: np.ndarray) -> set[bytes]:
    return {row.tobytes() for row in arrays}


def test_calibration_uses_training_images_without_augmentation():
    config = cnn_config()
    task = TASKS.get("image_classification").load()(config.task)

    features = [image.numpy() for image in training_features(adapt(task), config, 100)]

    assert len(features) == 100
    assert all(image.shape == (1, 8, 8, 1) for image in features)
    assert len(_rows(np.stack(features))) > 95
    assert _rows(np.stack(features)) <= _rows(load_digits(split="train").arrays["image"])


def test_validation_examples_are_spread_over_the_dataset():
    config = digits_config()
    task = TASKS.get("image_classification").load()(config.task)

    batches = [images.numpy() for images, *_ in validation_batches(adapt(task), config, 64)]

    assert [len(images) for images in batches] == [16] * 4
    places = [
        [image.tobytes() for image in IMAGES].index(images[0].tobytes()) for images in batches
    ]
    assert places == [0, 5 * 16, 11 * 16, 17 * 16]  # of 23 batches


@pytest.mark.slow
def test_classification_of_model_garden_is_exported(tmp_path):
    run_official(
        photos(tmp_path),
        tmp_path / "run",
        mode="train",
        task_class=SmallPhotoTask,
        export_subdir="served",
        export_formats=("litert", "keras"),
    )

    records = read_exports(tmp_path / "run", "served")

    assert [record["format"] for record in records] == ["litert", "keras"]
    for record in records:
        check = record["check"]
        assert check["examples"] == 24
        assert check["metrics"]["accuracy"] == check["model_metrics"]["accuracy"]
        assert check["relative"] < 1e-4


@pytest.mark.slow
def test_exporter_of_model_garden_reads_the_run_directory(tmp_path):
    from official.vision.serving import export_saved_model_lib
    from official.vision.serving.image_classification import ClassificationModule

    params = photos(tmp_path)
    params.task.model.backbone.resnet.model_id = 18
    params.task.model.input_size = [32, 32, 3]
    model, _ = run_official(params, tmp_path / "run", mode="train")
    export_saved_model_lib.export_inference_graph(
        "image_tensor",
        None,
        [32, 32],
        params,
        str(tmp_path / "run/checkpoints"),
        str(tmp_path / "to"),
        export_saved_model_subdir="saved_model",
    )

    images = np.random.default_rng(0).integers(0, 255, [2, 32, 32, 3]).astype(np.uint8)
    loaded = tf.saved_model.load(str(tmp_path / "to/saved_model"))
    logits = loaded.signatures["serving_default"](tf.constant(images))["logits"]
    module = ClassificationModule(
        params=params, batch_size=None, input_image_size=[32, 32], model=model
    )
    expected = module.serve(tf.constant(images))["logits"]
    np.testing.assert_allclose(logits, expected, atol=1e-4)
