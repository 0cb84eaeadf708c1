"""Which layers are trained at which step, mistakes in the patterns, and the table of layers."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.config.schema.trainer import FineTuning
from orbit_runner.errors import SettingError
from orbit_runner.state.trained_layers import LayerGroup, TrainedLayers, format_table, layer_groups
from orbit_runner.tasks.initial_weights import LoadedWeights
from tests.support.problems import raises
from tests.support.tuned import LAYERS, TunedConfig, TunedTask, tuned_config


def _model() -> tf_keras.Model:
    return TunedTask(TunedConfig()).build_model()


def _settings(text: str) -> FineTuning:
    found = tuned_config(text).trainer.fine_tuning
    assert found is not None
    return found


def _made(text: str) -> tuple[TrainedLayers, tf_keras.Model]:
    model = _model()
    return TrainedLayers(_settings(text), model), model


def _trained(model: tf_keras.Model) -> list[str]:
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
def test_frozen_layers_have_no_trainable_variables(freeze: str, trained: list[str]) -> None:
    layers, model = _made(f"{{freeze: {freeze}}}")

    assert _trained(model) == trained
    for step in (0, 100):
        layers.set_trainable_layers(step)
        assert _trained(model) == trained
    frozen = {one.name for one in model.variables if id(one) in layers.frozen}
    assert {name.partition("/")[0] for name in frozen} == {"first", "norm", "inner", "w"} - {
        *trained
    }


_GRADUAL = """{freeze: [first, norm, block], unfreeze:
 [{step: 20, layers: [norm]}, {step: 10, layers: [block/inner]}, {step: 30, layers: ['*']}]}
"""


def test_layers_are_trained_from_their_steps_on() -> None:
    layers, model = _made(_GRADUAL)

    assert _trained(model) == ["first", "norm", "inner", "w"]  # Those that have slots.
    found = {}
    for step in (30, 0, 9, 10, 19, 20, 29):
        layers.set_trainable_layers(step)
        found[step] = (layers.stage(step), _trained(model))
    assert found == {
        **dict.fromkeys((0, 9), (0, ["w"])),
        **dict.fromkeys((10, 19), (1, ["inner", "w"])),
        **dict.fromkeys((20, 29), (2, ["norm", "inner", "w"])),
        30: (3, ["first", "norm", "inner", "w"]),
    }
    assert [layers.steps_left(step, 15) for step in (0, 4, 5, 10, 29, 30)] == [10, 6, 5, 10, 1, 15]


def test_batch_norm_uses_its_moving_averages_while_it_is_frozen() -> None:
    layers, model = _made("{freeze: [norm], unfreeze: [{step: 5, layers: [norm]}]}")
    norm = model.get_layer("norm")
    x = tf.constant(np.random.default_rng(1).normal(3, 2, [8, 5]), tf.float32)
    before = [one.numpy() for one in norm.non_trainable_variables]
    layers.set_trainable_layers(4)
    frozen = norm(x, training=True)
    unchanged = [one.numpy() for one in (norm.moving_mean, norm.moving_variance)]
    layers.set_trainable_layers(5)
    trained = norm(x, training=True)

    np.testing.assert_allclose(frozen, x / np.sqrt(1 + 1e-3), rtol=1e-5)
    np.testing.assert_array_equal(unchanged, before)
    np.testing.assert_allclose(tf.reduce_mean(trained, 0), np.zeros(5), atol=1e-5)
    assert not np.array_equal(norm.moving_mean, before[0])


def test_layers_that_the_task_froze_stay_frozen() -> None:
    model = _model()
    model.get_layer("block").trainable = False
    layers = TrainedLayers(_settings("{freeze: [first]}"), model)
    layers.set_trainable_layers(3)

    assert _trained(model) == ["norm", "w"]


def test_first_entry_that_matches_determines_the_rate() -> None:
    layers, model = _made(
        "{learning_rates: [{layers: [first], factor: 0.1}, {layers: ['*'], factor: 2}]}"
    )
    found = {one.name: layers.factors[id(one)] for one in model.trainable_variables}

    assert found.pop("first/kernel:0") == found.pop("first/bias:0") == 0.1
    assert set(found.values()) == {2.0}
    assert len(found) == 6


class _Outer(tf_keras.layers.Layer):
    """A layer with a weight of its own and a layer inside."""

    def build(self, input_shape: Any) -> None:
        self.scale = self.add_weight("scale", [])
        self.inner = tf_keras.layers.Dense(2, name="inner")
        self.inner.build(input_shape)

    def call(self, inputs: Any) -> Any:
        return self.inner(inputs) * self.scale


def _refused(text: str, model: tf_keras.Model | None = None) -> tuple[str, str]:
    with pytest.raises(SettingError) as caught:
        TrainedLayers(_settings(text), model or _model())
    return caught.value.path.removeprefix("trainer.fine_tuning"), caught.value.reason


@pytest.mark.parametrize(
    ("text", "path", "reason"),
    [
        ("{freeze: [first, nrm]}", ".freeze", "'nrm' matches no layer; did you mean 'norm'?"),
        (
            "{freeze: [first], unfreeze: [{step: 3, layers: [norm]}]}",
            ".unfreeze[0].layers",
            "'norm' matches no frozen layer",
        ),
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
        ("{freeze: ['*']}", ".freeze", "freezes all layers"),
        (
            "{freeze: ['*'], unfreeze: [{step: 3, layers: [w]}]}",
            ".freeze",
            "freezes all layers, so the first step would train nothing",
        ),
    ],
)
def test_pattern_without_effect_is_an_error(text: str, path: str, reason: str) -> None:
    found = _refused(text)

    assert found[0] == path
    assert found[1].startswith(reason)
    if "matches no" in reason:
        names = ["first"] if "frozen layer" in reason else LAYERS
        assert [line.strip() for line in found[1].splitlines()[2:]] == names


def test_layer_with_own_weights_cannot_be_frozen_around_a_trained_layer() -> None:
    model = tf_keras.Sequential([tf_keras.Input([3]), _Outer(name="outer")])
    model.add(tf_keras.layers.Dense(1, name="w"))
    text = "{freeze: [outer], unfreeze: [{step: 3, layers: [outer/inner]}]}"

    path, reason = _refused(text, model)
    assert path == ".freeze"
    assert reason.startswith("the layer 'outer' has weights of its own")
    TrainedLayers(_settings("{freeze: [outer], unfreeze: [{step: 3, layers: [outer]}]}"), model)


def test_model_without_layers_is_an_error() -> None:
    with raises("bad-model", "trainer.fine_tuning"):
        TrainedLayers(FineTuning(), object())


def test_table_shows_each_setting_once() -> None:
    layers, model = _made(
        "{freeze: [first, norm], unfreeze: [{step: 7, layers: [norm]}],"
        " learning_rates: [{layers: [norm, w], factor: 0.5}]}"
    )
    norm = model.get_layer("norm")
    some = [*model.get_layer("first").weights, norm.gamma, *model.get_layer("block").weights]
    groups = layer_groups(model, layers, LoadedWeights("a", frozenset(map(id, some))))

    assert [dataclasses.astuple(one) for one in groups] == [
        ("first", "first", 1, 20, "yes", None, "a"),
        ("norm", "norm", 1, 20, "until step 7", 0.5, "a (1 of 4 variables)"),
        ("block/inner", "block/inner", 1, 24, "no", 1.0, "a"),
        ("w", "w", 1, 5, "no", 0.5, ""),
    ]
    head, *lines = (line.split() for line in format_table(groups))
    assert head == ["layers", "parameters", "frozen", "learning", "rate", "loaded", "from"]
    assert lines[0] == ["first", "20", "yes", "-", "a"]
    assert " ".join(lines[1]) == "norm 20 until step 7 × 0.5 a (1 of 4 variables)"
    assert lines[3] == ["w", "5", "no", "×", "0.5", "-"]


def test_layers_with_equal_settings_share_a_row() -> None:
    found = layer_groups(_model(), None, None)

    assert found == [LayerGroup("first", "w", 4, 69, "no", 1.0, "")]
    assert found[0].name == "first … w (4)"
