"""Which layers are trained, mistakes in the patterns, and what a run prints about its layers."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.config.schema.trainer import FineTuning
from orbit_runner.errors import SettingError
from orbit_runner.state.trained_layers import TrainedLayers
from orbit_runner.tasks.initial_weights import LoadedWeights
from tests.support.problems import raises
from tests.support.tuned import LAYERS, TunedConfig, TunedTask, tuned_config


def _model():
    return TunedTask(TunedConfig()).build_model()


def _settings(text):
    return tuned_config(text).trainer.fine_tuning


def _made(text):
    model = _model()
    return TrainedLayers(_settings(text), model), model


def _trained(model):
    return [variable.name.partition("/")[0] for variable in model.trainable_variables][::2]


@pytest.mark.parametrize(
    ("freeze", "trained"),
    [
        ("[first]", ["norm", "inner", "w"]),
        ("[block]", ["first", "norm", "w"]),
        ("[block/inner]", ["first", "norm", "w"]),
        ("['[fn]*', block]", ["w"]),
        ("[]", ["first", "norm", "inner", "w"]),
    ],
)
def test_frozen_layers_have_no_trainable_variables(freeze, trained):
    layers, model = _made(f"{{freeze: {freeze}}}")

    assert _trained(model) == trained
    frozen = {variable.name for variable in model.variables if id(variable) in layers.frozen}
    assert {name.partition("/")[0] for name in frozen} == {"first", "norm", "inner", "w"} - {
        *trained
    }


def test_batch_norm_uses_its_moving_averages_if_it_is_frozen():
    _, model = _made("{freeze: [norm]}")
    norm = model.get_layer("norm")
    x = tf.constant(np.random.default_rng(1).normal(3, 2, [8, 5]), tf.float32)
    before = [variable.numpy() for variable in (norm.moving_mean, norm.moving_variance)]

    np.testing.assert_allclose(norm(x, training=True), x / np.sqrt(1 + 1e-3), rtol=1e-5)
    np.testing.assert_array_equal([norm.moving_mean, norm.moving_variance], before)


def test_layers_that_the_task_froze_stay_frozen():
    model = _model()
    model.get_layer("block").trainable = False
    TrainedLayers(_settings("{freeze: [first]}"), model)

    assert _trained(model) == ["norm", "w"]


def test_first_entry_that_matches_determines_the_rate():
    layers, model = _made(
        "{learning_rates: [{layers: [first], factor: 0.1}, {layers: ['*'], factor: 2}]}"
    )
    factors = {
        variable.name: layers.factors[id(variable)] for variable in model.trainable_variables
    }

    assert factors.pop("first/kernel:0") == factors.pop("first/bias:0") == 0.1
    assert set(factors.values()) == {2.0}
    assert len(factors) == 6


class _Outer(tf_keras.layers.Layer):
    """A layer with a weight of its own and a layer inside."""

    def __init__(self, inner):
        super().__init__(name="outer")
        self.inner = inner

    def build(self, input_shape):
        self.scale = self.add_weight("scale", [])

    def call(self, inputs):
        return self.inner(inputs) * self.scale


def _refused(text, model=None):
    with pytest.raises(SettingError) as caught:
        TrainedLayers(_settings(text), model or _model())
    return caught.value.path.removeprefix("trainer.fine_tuning"), caught.value.reason


@pytest.mark.parametrize(
    ("text", "path", "reason"),
    [
        ("{freeze: [first, nrm]}", ".freeze", "'nrm' matches no layer; did you mean 'norm'?"),
        (
            "{learning_rates: [{layers: [w, block/iner], factor: 2}]}",
            ".learning_rates[0].layers",
            "'block/iner' matches no layer; did you mean 'block/inner'?",
        ),
        (
            "{freeze: [first], learning_rates: [{layers: [first], factor: 2}]}",
            ".learning_rates[0].layers",
            "['first'] has no effect: they are frozen",
        ),
        (
            "{learning_rates: [{layers: ['*'], factor: 2}, {layers: [w], factor: 3}]}",
            ".learning_rates[1].layers",
            "['w'] has no effect: earlier entries match all their layers",
        ),
        ("{freeze: ['*']}", ".freeze", "freezes all layers, so a step would train nothing"),
    ],
)
def test_pattern_without_effect_is_an_error(text, path, reason):
    problem = _refused(text)

    assert problem[0] == path
    assert problem[1].startswith(reason)
    if "matches no" in reason:
        assert [line.strip() for line in problem[1].splitlines()[2:]] == LAYERS


def test_layer_with_own_weights_cannot_be_frozen_around_a_trained_layer():
    inner = tf_keras.layers.Dense(3, name="inner")  # Its name is that of its first use.
    model = tf_keras.Sequential([tf_keras.Input([3]), inner, _Outer(inner)])

    path, reason = _refused("{freeze: [outer]}", model)
    assert path == ".freeze"
    assert reason.startswith("the layer 'outer' has weights of its own")
    TrainedLayers(_settings("{learning_rates: [{layers: [outer], factor: 2}]}"), model)


def test_model_without_layers_is_an_error():
    with raises("bad-model", "trainer.fine_tuning"):
        TrainedLayers(FineTuning(), object())


@pytest.mark.parametrize(
    ("loaded", "text"),
    [
        ([], "2 of 4 layers are frozen"),
        (["first", "block"], "2 of 4 layers are frozen, 2 are loaded"),
    ],
)
def test_line_counts_layers_that_are_frozen_or_loaded(loaded, text):
    layers, model = _made("{freeze: [first, norm]}")
    variables = [weight for name in loaded for weight in model.get_layer(name).weights]
    weights = LoadedWeights("runs/a", frozenset(map(id, variables)))

    line = layers.describe(weights if loaded else None)
    assert line == f"fine-tuning: {text}" + " from runs/a" * bool(loaded)
