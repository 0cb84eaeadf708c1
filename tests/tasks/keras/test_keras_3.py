"""Models of Keras 3: as exact as those of Keras 2, with the numbers of Keras 3 itself."""

import json
import os
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import orbit_runner
from orbit_runner.checkpoint.fingerprint import weights_fingerprint
from orbit_runner.determinism import keras_3
from orbit_runner.determinism.scopes import keyed_draws_scope, unkeyed_draws
from orbit_runner.tasks.keras.task import KerasTask
from tests.support import keras_3_models, keras_models
from tests.support.keras_models import OPTIMIZERS, keras_config
from tests.support.problems import raises
from tests.support.processes import process
from tests.support.toy import run, run_and_resume

_HERE = "tests.support.keras_3_models"
_SENTENCES = {
    "task__model": f"{_HERE}:masked",
    "task__train_data__function": f"{_HERE}:sentences",
    "task__validation_data__function": f"{_HERE}:sentences",
    "task__validation_data__arguments": "{}",
}
_AVERAGING = "optimizer that averages"
_MODELS = {
    "subclass": {"task__model": f"{_HERE}:Subclassed"},
    "masked": _SENTENCES,
    _AVERAGING: {"task__model": f"{_HERE}:classifier", **OPTIMIZERS[_AVERAGING]},
    "own_loss_and_metric_and_a_layer_that_is_not_trained": {
        "task__model": f"{_HERE}:classifier",
        "task__model__arguments": "{trains_hidden: false}",
        "task__loss": f"{{class_name: '{_HERE}:Squared', config: {{factor: 0.5}}}}",
        "task__metrics": f"[accuracy, '{_HERE}:LargestOutput']",
    },
    **{
        name: {"task__model": f"{_HERE}:classifier", **settings}
        for name, settings in OPTIMIZERS.items()
        if name != _AVERAGING
    },
}
# Each model meets one of the strategies, in turn; all with --wide.
_RESUMED = [
    pytest.param(name, strategy, marks=[pytest.mark.wide] if (i + j) % 2 else [])
    for i, name in enumerate(_MODELS)
    for j, strategy in enumerate(("one_device", "mirrored2"))
    if (name, strategy) != (_AVERAGING, "mirrored2")
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "strategy"), _RESUMED)
def test_stopped_and_resumed_run_has_the_weights_of_an_uninterrupted_one(tmp_path, strategy, name):
    config = keras_config(**_MODELS[name])
    run_and_resume(config, tmp_path, strategy)
    record = json.loads((tmp_path / "whole" / "checkpoints" / "ckpt-20.json").read_text())
    assert record["numerics"]["keras"] == keras.__version__


def test_averages_that_replace_the_weights_need_one_replica(tmp_path):
    with raises("not-supported", "task.optimizer"):
        run(keras_config(**_MODELS[_AVERAGING]), tmp_path, strategy="mirrored2")


@pytest.mark.slow
def test_logical_replicas_have_the_weights_of_devices(tmp_path):
    fingerprints = set()
    for strategy in ("one_device", "mirrored2"):
        for replicas in (2,) if strategy == "one_device" else (0, 2):
            config = keras_config(**_MODELS["subclass"], runtime__logical_replicas=replicas)
            model, _ = run(config, tmp_path / f"{strategy}{replicas}", strategy=strategy)
            fingerprints.add(weights_fingerprint(model))

    assert len(fingerprints) == 1


def test_random_draws_are_a_function_of_the_step():
    task = KerasTask(keras_config(**_MODELS["subclass"]).task)
    model = task.build_model()
    states = [generator.state.numpy() for generator in _generators(model.keras_3_model)]

    @tf.function
    def outputs(step):
        with keyed_draws_scope(1, step, 0):
            return model(tf.ones([2, 4]), training=True)

    first, repeated, second = (outputs(tf.constant(step)).numpy() for step in (1, 1, 2))
    np.testing.assert_array_equal(first, repeated)
    assert np.abs(first - second).max() > 1e-3
    assert not unkeyed_draws(outputs.get_concrete_function(tf.constant(1)))
    after = [generator.state.numpy() for generator in _generators(model.keras_3_model)]
    np.testing.assert_array_equal(states, after)


def _generators(model):
    return [model.generator, model.noise.seed_generator]


def test_replica_local_variables_are_averaged_like_those_of_keras_2():
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    task = KerasTask(keras_config(task__model=f"{_HERE}:classifier").task)
    with strategy.scope():
        model = task.build_model()

    kinds = {variable.name: variable for variable in model.non_trainable_variables}
    assert [name.rpartition("/")[2] for name in kinds] == ["moving_mean:0", "moving_variance:0"]
    for variable in kinds.values():
        assert variable.synchronization == tf.VariableSynchronization.ON_READ
        assert variable.aggregation == tf.VariableAggregation.MEAN
    for variable in model.trainable_variables:
        assert variable.synchronization != tf.VariableSynchronization.ON_READ


def test_another_backend_is_refused(monkeypatch):
    task = KerasTask(keras_config(task__model=f"{_HERE}:classifier").task)
    monkeypatch.setattr(keras.config, "backend", lambda: "jax")
    with raises("wrong-type", "task.model.build"):
        task.build_model()


@pytest.mark.slow
def test_keras_is_configured_when_the_program_imports_it():
    program = """
import random, sys, tf_keras
from orbit_runner.determinism import keras_3
random.seed(1)
tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
with keras_3.restored_scope():
    with keras_3.configured_scope():
        assert not keras_3.is_imported()
        import keras
    policy = keras.config.dtype_policy().name
assert keras.config.dtype_policy().name == "float32"
assert not any("keras_3" in type(finder).__module__ for finder in sys.meta_path)
drawn = random.random()
random.seed(1)
assert drawn == random.random()  # Importing Keras 3 draws numbers.
print(keras_3.is_imported(), policy, keras.__spec__.loader)
"""
    environment = {**os.environ, "TF_USE_LEGACY_KERAS": "1"}  # As in all processes of this package.
    completed = process(sys.executable, "-c", program, env=environment)
    assert completed.stdout.startswith("True mixed_bfloat16"), completed.stderr
    assert "orbit_runner" not in completed.stdout


def test_names_of_layers_begin_again():
    keras_3.reset()
    assert keras.layers.Dense(1).name == "dense"
    assert keras.layers.Dense(1).name == "dense_1"
    keras_3.reset()
    assert keras.layers.Dense(1).name == "dense"


@pytest.mark.slow
def test_run_from_python_returns_and_exports_the_model_of_keras_3(tmp_path):
    result = orbit_runner.run(
        keras_3_models.classifier,
        keras_models.classes(),
        validation_split=0.2,
        metrics=["accuracy"],
        epochs=2,
        model_dir=tmp_path / "run",
        overrides={"trainer.export_subdir": "exported", "trainer.export_formats": ["keras"]},
    )
    x, _ = keras_models.classes(5)
    expected = result.model.predict(x, verbose=0)

    assert isinstance(result.model, keras.Sequential)
    assert result.inexact == []
    (file,) = tmp_path.rglob("model.keras")
    exported = keras.models.load_model(file, compile=False)
    np.testing.assert_array_equal(exported.predict(x, verbose=0), expected)


@pytest.mark.slow
def test_exported_model_of_texts_has_its_table_and_its_generators(tmp_path):
    result = orbit_runner.run(
        keras_3_models.reader,
        keras_3_models.texts(),
        loss="binary_crossentropy",
        epochs=2,
        model_dir=tmp_path / "run",
        overrides={"trainer.export_subdir": "exported"},
    )
    texts, _ = keras_3_models.texts(4)

    (file,) = tmp_path.rglob("saved_model.pb")
    signature = tf.saved_model.load(str(file.parent)).signatures["predict"]
    outputs = signature(x=tf.constant(texts))["outputs"]
    np.testing.assert_allclose(outputs, result.model(tf.constant(texts)), rtol=1e-6)
