"""Names of layers and variables, and the patterns that select them."""

import pytest
import tf_keras

from orbit_runner.tasks.layer_names import (
    group_names,
    layers_by_name,
    named_layers,
    no_match_message,
    selects,
    variable_names,
)
from tests.support.tuned import LAYERS, TunedConfig, TunedTask


@pytest.fixture(scope="module")
def model():
    return TunedTask(TunedConfig()).build_model()


def test_layers_have_the_names_of_those_that_contain_them(model):
    layers = named_layers(model)

    assert [layer.name for layer in layers] == ["tuned", *LAYERS]
    assert [len(layer.weights) for layer in layers] == [0, 2, 4, 0, 2, 2]
    assert [len(layer.trainable_weights) for layer in layers] == [0, 2, 2, 0, 2, 2]


def test_shared_layer_is_listed_once_under_its_first_name():
    shared = tf_keras.layers.Dense(3, name="shared")
    inputs = tf_keras.Input([3])
    nested = tf_keras.Sequential([tf_keras.Input([3]), shared], name="nested")
    model = tf_keras.Model(inputs, nested(shared(inputs)), name="model")

    assert [layer.name for layer in named_layers(model)] == ["model", "shared", "nested"]


def test_variables_are_named_after_their_layers(model):
    names = variable_names(model)

    assert [names[id(variable)] for variable in model.trainable_variables] == [
        *("first/kernel", "first/bias", "norm/gamma", "norm/beta"),
        *("block/inner/kernel", "block/inner/bias", "w/kernel", "w/bias"),
    ]


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("block", "block/inner", True),
        ("block/*", "block/inner", True),
        ("block/*", "block", False),
        ("*/inner", "block/inner", True),
        ("b*", "block/inner/kernel", True),
        ("inner", "block/inner", False),
        ("bloc", "block", False),
        ("stage[12]*", "stage2_conv", True),
        ("Block", "block", False),
    ],
)
def test_pattern_selects_a_layer_and_all_inside_it(pattern, name, expected):
    assert selects(pattern, name) is expected


@pytest.mark.parametrize(
    ("pattern", "nearest"),
    [
        ("blok", "; did you mean 'block'?"),
        ("frist*", "; did you mean 'first'?"),
        ("zzz", ""),
        ("*", ""),
    ],
)
def test_message_names_the_nearest_layer_and_all_layers(pattern, nearest):
    first, _, rest = no_match_message("layer", pattern, LAYERS).partition("\n")

    assert first == f"{pattern!r} matches no layer{nearest}"
    assert rest.split() == ["the", "names", "of", "layers:", *LAYERS]


def test_layers_by_name_include_those_without_weights(model):
    layers = layers_by_name(model)
    assert {name: layers[name] for name in LAYERS} == {
        named_layer.name: named_layer.layer for named_layer in named_layers(model)[1:]
    }
    assert layers["tuned"] is model
    assert any(not layer.weights for layer in layers.values())


def test_layers_with_the_same_name_have_different_names():
    class Two(tf_keras.Model):
        def __init__(self):
            super().__init__(name="two")
            self.parts = [tf_keras.layers.ReLU(name="same") for _ in range(2)]

    assert [*layers_by_name(Two())] == ["two", "same", "same_"]


def test_layers_with_a_common_prefix_are_one_group_if_there_are_many():
    names = [f"net/block_{n}/{part}" for n in range(12) for part in ("key", "value", "out")]
    assert [*dict.fromkeys(group_names(names, 32))] == [f"net/block_{n}" for n in range(12)]


@pytest.mark.parametrize("prefix", ["", "net/"])
@pytest.mark.parametrize("count", [33, 64, 200])
def test_consecutive_layers_are_one_group_if_no_prefix_is_shared(prefix, count):
    names = [f"{prefix}conv_{n}" for n in range(count)]
    group_of = dict(zip(names, group_names(names, 32), strict=True))
    groups = list(dict.fromkeys(group_of.values()))
    assert 16 <= len(groups) <= 32
    first, _, last = groups[0].partition("..")
    assert first == f"{prefix}conv_0"
    assert group_of[last] == groups[0]
    assert [*group_of.values()] == sorted(group_of.values(), key=groups.index)
