"""Models as they are: compiled ones, objects that were passed to `run`, and `.keras` files."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import orbit_runner
from orbit_runner.checkpoint.fingerprint import weights_fingerprint
from orbit_runner.data.source_cache import source_cache_scope
from orbit_runner.run_directory.data_record import fingerprint_of
from orbit_runner.tasks.assets import Assets
from orbit_runner.tasks.keras.config import KerasModelConfig
from orbit_runner.tasks.keras.model_builder import build_model, register_model
from orbit_runner.tasks.keras.passed_objects import MODELS
from orbit_runner.tasks.keras.task import KerasTask
from tests.support.keras_models import classes, keras_config
from tests.support.problems import check, raises
from tests.support.toy import Notes, run

_HERE = "tests.tasks.keras.test_model_objects"
_LOGITS = {"class_name": "SparseCategoricalCrossentropy", "config": {"from_logits": True}}
_PACKAGES = {"2": tf_keras, "3": keras}


@pytest.fixture(autouse=True)
def forgotten_models():
    with source_cache_scope():
        yield
    MODELS.clear()


def model_of(version="2", **compiled):
    """Returns a classifier, compiled if there are arguments of `compile`."""
    package = _PACKAGES[version]
    layers = package.layers
    model = package.Sequential(
        [
            package.Input([4]),
            layers.Dense(8, activation="relu"),
            layers.BatchNormalization(),
            layers.Dense(3, activation="softmax"),
        ]
    )
    if isinstance(name := compiled.get("optimizer"), str):
        compiled["optimizer"] = getattr(package.optimizers, name)(0.1)
    if compiled:
        model.compile(**compiled)
    return model


def compiled_model(version="2"):
    """Returns a compiled classifier."""
    package = _PACKAGES[version]
    return model_of(
        version,
        optimizer="RMSprop",
        loss=package.losses.SparseCategoricalCrossentropy(),
        metrics=["accuracy", package.metrics.SparseTopKCategoricalAccuracy(2, name="top_2")],
    )


class Subclassed(tf_keras.Model):
    """A model with arguments that its config lacks."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def call(self, inputs):
        return self.layer(inputs)


class Configured(tf_keras.Model):
    """A model that can be built again from its config."""

    def __init__(self, units=3):
        super().__init__()
        self.units = units
        self.out = tf_keras.layers.Dense(units)

    def call(self, inputs):
        return self.out(inputs)

    def get_config(self):
        return {"units": self.units}


def _quoted(model):
    """Registers a model. Returns its digest as YAML: it may be all digits."""
    return f"'{register_model(model)}'"


def _data():
    x, y = classes(64)
    return x.astype(np.float32), y


def _values(model):
    return [np.array(weight) for weight in model.get_weights()]


def _config(**model):
    changes = {f"task__model__{name}": value for name, value in {"build": "''", **model}.items()}
    return keras_config(**{"task__model": "{}", **changes, "task__loss": "''"})


def test_compiled_model_of_keras_3_without_an_input_shape_gets_its_weights():
    task = KerasTask(_config(build=f"{_HERE}:without_inputs").task)
    assert len(task.build_model().trainable_variables) == 2


def without_inputs():
    """Returns a compiled model that has no weights yet."""
    model = keras.Sequential([keras.layers.Dense(3, activation="softmax")])
    model.compile(loss="sparse_categorical_crossentropy")
    return model


@pytest.mark.parametrize("version", ["2", "3"])
def test_settings_win_over_compile(version):
    config = _config(build=f"{_HERE}:compiled_model", arguments__version=f"'{version}'").task
    task = KerasTask(config.replace(metrics=("mae",), loss=_LOGITS))
    model = task.build_model()
    assert [metric.name for metric in task.build_metrics()] == ["mae"]
    x, y = _data()
    outputs = model(x)
    losses = task.example_losses((tf.constant(x), tf.constant(y), None), outputs)
    expected = tf.nn.sparse_softmax_cross_entropy_with_logits(y, outputs)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    # What `compile` has built is no part of checkpoints and exports.
    children = tf.train.TrackableView(model).children(model)
    assert {"optimizer", "compiled_loss", "compiled_metrics"}.isdisjoint(children)


@pytest.mark.parametrize("version", ["2", "3"])
@pytest.mark.parametrize("model", ["model_of", "compiled_model"])
def test_note_says_that_the_optimizer_of_compile_is_not_used(version, model):
    rate = "{type: constant, constant: {learning_rate: 0.1}}"
    config = keras_config(
        task__model="{}",
        task__model__build=f"{_HERE}:{model}",
        task__model__arguments__version=f"'{version}'",
        task__loss="sparse_categorical_crossentropy",
        trainer__optimizer_config__optimizer="{type: adam_experimental}",
        trainer__optimizer_config__learning_rate=rate,
    )
    notes = Notes()
    with notes.listening_scope():
        task = KerasTask(config.task)
        task.build_model()
        optimizer = task.create_optimizer(config.trainer.optimizer_config)
    assert type(optimizer) is tf_keras.optimizers.Adam
    noted = [text for text in notes.notes if "the model is compiled with another" in text]
    assert len(noted) == (model == "compiled_model")


@pytest.mark.sample(1)
@pytest.mark.parametrize("version", ["2", "3"])
def test_weights_of_a_model_are_the_initial_ones(version, tmp_path):
    model = model_of(version)
    model.set_weights([value + 0.25 for value in _values(model)])
    before = _values(model)
    result = orbit_runner.run(
        model,
        _data(),
        optimizer={
            "optimizer": {"type": "sgd"},
            "learning_rate": {"type": "constant", "constant": {"learning_rate": 0.0}},
        },
        batch_size=64,
        model_dir=tmp_path / "run",
        progress="none",
    )

    trained = _values(result.model)
    assert type(result.model) is type(model)
    # The moving averages change without a learning rate; the kernels do not.
    for index in (0, 1, 2, 3, 6, 7):
        np.testing.assert_array_equal(trained[index], before[index])
    for value, other in zip(before, _values(model), strict=True):
        np.testing.assert_array_equal(value, other)
    saved = orbit_runner.load(tmp_path / "run")
    assert saved.config.task.model.digest == register_model(model)
    assert not result.inexact
    MODELS.clear()  # As in another process.
    for value, other in zip(_values(saved.model()), trained, strict=True):
        np.testing.assert_array_equal(value, other)


@pytest.mark.slow
def test_run_of_a_compiled_model_has_its_settings_and_repeats(tmp_path):
    tf_keras.utils.set_random_seed(3)
    model = model_of(
        "2",
        optimizer=tf_keras.optimizers.SGD(0.1, momentum=0.9),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    results = [
        orbit_runner.run(model, _data(), model_dir=tmp_path / name, progress="none")
        for name in ("a", "b")
    ]
    config = orbit_runner.load(tmp_path / "a").config

    assert results[0].weights == results[1].weights
    assert config.task.loss == "sparse_categorical_crossentropy"
    assert config.task.metrics == ("accuracy",)
    optimizer = config.task.optimizer
    assert (optimizer["class_name"], optimizer["config"]["momentum"]) == ("SGD", 0.9)
    assert config.trainer.optimizer_config.optimizer.type is None

    other = tf_keras.models.clone_model(model)
    other.set_weights([value + 1 for value in _values(model)])
    arguments = {name: getattr(config.task, name) for name in ("loss", "metrics", "optimizer")}
    with raises("other-config"):
        orbit_runner.run(
            other, _data(), **arguments, model_dir=tmp_path / "a", progress="none"
        )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("version", ["2", "3"])
def test_default_optimizer_of_compile_is_that_of_the_run(version, tmp_path):
    model = model_of(version, loss="sparse_categorical_crossentropy")
    orbit_runner.run(model, _data(), model_dir=tmp_path, progress="none")
    config = orbit_runner.load(tmp_path).config
    assert config.task.optimizer["class_name"] == "RMSprop"


@pytest.mark.slow
@pytest.mark.parametrize("version", ["2", "3"])
def test_run_has_the_model_for_other_processes(version, tmp_path):
    config = _config(digest=_quoted(compiled_model(version)))
    uninterrupted, _ = run(config, tmp_path / "whole")
    run(config.replace(trainer=config.trainer.replace(train_steps=10)), tmp_path / "parts")
    MODELS.clear()
    parts, _ = run(config, tmp_path / "parts")
    assert weights_fingerprint(parts) == weights_fingerprint(uninterrupted)


@pytest.mark.slow
def test_model_without_weights_is_built_with_the_seed(tmp_path):
    model = tf_keras.Sequential([tf_keras.layers.Dense(3)])
    config = _config(digest=_quoted(model))
    built = [weights_fingerprint(run(config, tmp_path / name)[0]) for name in ("a", "b")]
    assert built[0] == built[1]
    assert not model.built


def test_subclass_is_copied_by_its_config():
    model = Configured(3)
    model(np.zeros([1, 4], np.float32))
    copy = KerasTask(_config(digest=_quoted(model)).task.replace(loss=_LOGITS)).build_model()
    assert copy is not model
    for value, other in zip(_values(model), _values(copy), strict=True):
        np.testing.assert_array_equal(value, other)


def test_model_that_cannot_be_copied_is_refused():
    model = Subclassed(tf_keras.layers.Dense(3))
    model(np.zeros([1, 4], np.float32))
    with raises("bad-model", "task.model"):
        KerasTask(_config(digest=_quoted(model)).task).build_model()


@pytest.mark.parametrize("version", ["2", "3"])
def test_vocabulary_that_a_layer_adapted_to_is_copied(version):
    package = _PACKAGES[version]
    lookup = package.layers.StringLookup(output_mode="multi_hot")
    lookup.adapt(["a", "b", "b"])
    model = package.Sequential([package.Input([1], dtype="string"), lookup])
    config = KerasModelConfig(digest=register_model(model))
    copy, _ = build_model(config, tf_keras.Input([1], dtype="string"), Assets())
    assert copy.layers[-1].get_vocabulary() == lookup.get_vocabulary()
    assert copy.layers[-1] is not lookup


def test_model_of_another_process_is_an_error():
    with raises("not-repeatable", "task.model"):
        KerasTask(_config(digest="a" * 64).task).build_model()


@pytest.mark.parametrize("version", ["2", "3"])
def test_file_has_the_model_and_its_initial_weights(version, tmp_path):
    model = compiled_model(version)
    model.set_weights([value + 0.25 for value in _values(model)])
    model.save(tmp_path / "model.keras")
    config = keras_config(task__model=str(tmp_path / "model.keras"), task__loss="''")
    assert config.task.model.file == str(tmp_path / "model.keras")
    task = KerasTask(config.task)
    loaded = task.build_model()

    values = _values(getattr(loaded, "keras_3_model", loaded))
    for value, other in zip(_values(model), values, strict=True):
        np.testing.assert_array_equal(value, other)
    assert [metric.name for metric in task.build_metrics()] == ["accuracy", "top_2"]
    # Another file is other data, so the run does not resume.
    before = fingerprint_of(config.task)["model"]
    model.set_weights([value + 0.5 for value in _values(model)])
    model.save(tmp_path / "model.keras")
    assert before[0].digest != fingerprint_of(config.task)["model"][0].digest


@pytest.mark.parametrize("version", ["2", "3"])
def test_file_with_code_is_refused(version, tmp_path):
    package = _PACKAGES[version]
    double = package.layers.Lambda(lambda x: x * 2)
    package.Sequential([package.Input([4]), double]).save(tmp_path / "model.keras")
    config = _config(file=str(tmp_path / "model.keras")).task
    with raises("bad-model", "task.model.file") as caught:
        KerasTask(config).build_model()
    assert "Lambda" in str(caught.value)


def test_damaged_file_is_an_error(tmp_path):
    (tmp_path / "model.keras").write_text("nothing")
    with raises("bad-model", "task.model.file"):
        KerasTask(_config(file=str(tmp_path / "model.keras")).task).build_model()


@pytest.mark.parametrize(
    ("model", "code", "path"),
    [
        ({"file": "model.h5"}, "wrong-type", "file"),
        ({"file": "a.keras", "build": f"{_HERE}:model_of"}, "conflict", "file"),
        ({"file": "a.keras", "arguments": "{a: 1}"}, "no-effect", "arguments"),
    ],
)
def test_wrong_settings_of_a_model(model, code, path):
    with raises(code, f"task.model.{path}"):
        _config(**model)


def test_missing_file_is_reported_before_tensorflow_is_needed():
    config = keras_config(task__model="missing.keras")
    check(config.task.model.preflight(), ("missing-file", "file"))
