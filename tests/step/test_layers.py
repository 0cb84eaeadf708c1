"""The table of layers: parameters and operations add up, for nested and repeated layers too."""

import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.inspection.measure import trace_model
from orbit_runner.models.configs import CnnConfig, ResNetCifarConfig
from orbit_runner.models.layers import ImageInput
from orbit_runner.models.resnet_cifar import resnet_cifar
from orbit_runner.models.simple import cnn
from orbit_runner.step.layers import MOST_ROWS, LayerCalls, layer_rows
from orbit_runner.step.results import forward_flops, totals
from orbit_runner.utils.flops import step_flops

layers = tf_keras.layers


def rows_of(model, *, every=False):
    calls = LayerCalls(model)
    trace_model(model, calls)
    return layer_rows(model, calls, every=every)


def flops_of_graph(model):
    """Counts the operations of a call on one example, without regard to layers."""
    specs = [tf.TensorSpec([1, *tensor.shape[1:]], tensor.dtype) for tensor in model.inputs]
    call = tf.function(lambda x: model(x, training=True)).get_concrete_function(*specs)
    return step_flops(call.graph)


def nested():
    """A model with a model inside, whose weights another layer shares, and a frozen layer."""
    inner = tf_keras.Sequential(
        [layers.Dense(8, input_shape=(4,), name="a"), layers.Dense(4, name="b")], name="inner"
    )
    inputs = tf_keras.Input([4])
    x = tf.reshape(inner(inner(inputs)), [-1, 2, 2])[:, 0]
    frozen = layers.Dense(3, name="frozen", trainable=False)
    return tf_keras.Model(inputs, frozen(x), name="outer")


def small_cnn():
    return cnn(CnnConfig(filters=(4, 8), dense_units=16), ImageInput((8, 8, 1), 10))


def deep_resnet():
    return resnet_cifar(ResNetCifarConfig(depth=56), ImageInput((32, 32, 3), 10))


@pytest.mark.slow
@pytest.mark.parametrize("build", [small_cnn, nested, deep_resnet])
def test_rows_add_up_to_the_parameters_and_operations_of_the_model(build):
    model = build()
    trainable = sum(weight.shape.num_elements() for weight in model.trainable_weights)
    flops = flops_of_graph(model)

    for every in (False, True):
        rows = rows_of(model, every=every)
        assert sum(totals(rows)) == model.count_params()
        assert totals(rows)[0] == trainable
        assert forward_flops(rows) == flops
        assert every or len(rows) <= MOST_ROWS


def test_rows_of_a_cnn_have_the_output_shapes_and_operations_of_its_layers():
    layers = {row.name: row for row in rows_of(small_cnn())}

    assert layers["conv1"].shape == (8, 8, 4)
    assert layers["conv1"].kind == "Conv2D"
    assert layers["conv1"].parameters == 5 * 5 * 4 + 4
    assert layers["conv1"].flops == 2 * 8 * 8 * 5 * 5 * 4
    assert layers["pool2"].shape == (2, 2, 8)


def test_blocks_of_a_long_model_are_shown_instead_of_their_layers():
    blocks = [
        tf_keras.Sequential([layers.Dense(3), layers.Dense(3)], name=f"block{number}")
        for number in range(MOST_ROWS // 2 + 1)
    ]
    model = tf_keras.Sequential([tf_keras.Input([3]), *blocks])

    assert [row.name for row in rows_of(model)][1:] == [block.name for block in blocks]
    assert len(rows_of(model, every=True)) > MOST_ROWS


def test_layers_of_a_nested_model_have_its_name_and_count_the_repeated_call():
    layers = {row.name: row for row in rows_of(nested())}

    assert layers["inner/a"].flops == 2 * (2 * 4 * 8)
    assert layers["frozen"].parameters == 2 * 3 + 3
    assert layers["frozen"].trainable == 0


def test_recording_leaves_the_layers_as_they_were():
    model = nested()
    before = [vars(layer).get("call") for layer in model.layers]
    assert {call is None for call in before} == {True, False}  # Single ops have their own.

    rows_of(model)

    assert [vars(layer).get("call") for layer in model.layers] == before


def test_a_layer_in_two_places_counts_once():
    shared, inputs = layers.Dense(4, name="shared"), tf_keras.Input([4])
    inner = tf_keras.Sequential([tf_keras.Input([4]), shared], name="inner")
    model = tf_keras.Model(inputs, layers.add([inner(inputs), shared(inputs)]))

    rows = rows_of(model)

    assert [row.name for row in rows if "shared" in row.name] in (
        ["inner/shared", "shared"],
        ["shared", "inner/shared"],
    )
    assert sum(totals(rows)) == model.count_params() == 4 * 4 + 4
    assert forward_flops(rows) == flops_of_graph(model) == 2 * (2 * 4 * 4)
