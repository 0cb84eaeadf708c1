"""Properties of every network for small images."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.models.resnet_cifar import resnet_cifar
from orbit_runner.models.simple import cnn, mlp

_NETWORKS = {
    "cnn": functools.partial(cnn, dense_units=16),
    "mlp": mlp,
    "mlp_dropout": functools.partial(mlp, dropout_rate=0.2),
    "resnet_v1": functools.partial(resnet_cifar, depth=14, version=1),
    "resnet_v2": functools.partial(resnet_cifar, depth=20, version=2),
}


@pytest.fixture(params=_NETWORKS)
def network(request):
    return functools.partial(
        _NETWORKS[request.param],
        input_shape=(16, 16, 3),
        num_classes=7,
        mean=(125.0, 123.0, 114.0),
        std=(63.0, 62.0, 66.0),
    )


def _pixels(dtype: str = "uint8") -> np.ndarray:
    return np.random.default_rng(7).integers(0, 256, (8, 16, 16, 3)).astype(dtype)


def _loss(model: tf_keras.Model, pixels: np.ndarray) -> tf.Tensor:
    labels = tf.range(len(pixels)) % 7
    logits = model(pixels, training=True)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))


@pytest.mark.sample(2)
def test_logits_and_variables_are_float32_under_every_policy(network, policy):
    model = network()
    logits = model(_pixels())
    assert (logits.dtype, logits.shape) == (tf.float32, (8, 7))
    assert np.all(np.isfinite(logits))
    assert model.output_shape == (None, 7)
    assert {variable.dtype for variable in model.variables} == {tf.float32}
    hidden = {
        layer.compute_dtype for layer in model.layers if layer.name not in ("image", "logits")
    }
    assert hidden == {policy.compute_dtype}


@pytest.mark.sample(2)
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_network_accepts_raw_pixels_of_each_dtype(network, dtype):
    model = network(input_dtype=dtype)
    assert model.input.dtype == dtype
    assert model(_pixels(dtype)).shape == (8, 7)


@pytest.mark.sample(1)
def test_variable_names_are_unique_and_equal_across_builds(network):
    first, second = network(), network()
    names = [variable.name for variable in first.variables]
    assert names == [variable.name for variable in second.variables]
    assert len(set(names)) == len(names)
    assert [layer.name for layer in first.layers] == [layer.name for layer in second.layers]
    assert first.name == second.name


@pytest.mark.sample(1)
def test_normalization_subtracts_the_mean(network):
    """The same weights on shifted pixels and a shifted mean give the same logits."""
    plain = network(input_dtype="float32")
    shifted = network(input_dtype="float32", mean=(135.0, 133.0, 124.0))
    shifted.set_weights(plain.get_weights())
    pixels = _pixels("float32")
    np.testing.assert_allclose(shifted(pixels + 10), plain(pixels), rtol=1e-4, atol=1e-5)


@pytest.mark.sample(4)
def test_a_gradient_reaches_every_trainable_variable(network, policy):
    model = network()
    with tf.GradientTape() as tape:
        loss = _loss(model, _pixels())
    gradients = tape.gradient(loss, model.trainable_variables)
    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        assert gradient is not None, variable.name
        assert np.all(np.isfinite(gradient)), variable.name
        assert np.any(gradient), variable.name


@pytest.mark.sample(2)
def test_model_can_be_rebuilt_from_its_config(network, policy):
    model = network()
    again = tf_keras.Model.from_config(model.get_config())
    again.set_weights(model.get_weights())
    assert [x.name for x in again.variables] == [x.name for x in model.variables]
    np.testing.assert_array_equal(again(_pixels()), model(_pixels()))


def _dense(inputs: int, outputs: int) -> int:
    return (inputs + 1) * outputs


def test_default_cnn_has_the_expected_parameter_count():
    model = cnn(input_shape=(28, 28, 1), num_classes=10)
    convolutions = _dense(5 * 5 * 1, 32) + _dense(5 * 5 * 32, 64)
    assert convolutions + _dense(7 * 7 * 64, 1024) + _dense(1024, 10) == 3_274_634
    assert model.count_params() == 3_274_634


@pytest.mark.parametrize(("size", "left"), [(28, 7), (30, 8), (5, 2)])
def test_each_convolution_halves_the_size_rounded_up(size, left):
    model = cnn(input_shape=(size, size, 3), num_classes=4, filters=(2, 3), dense_units=5)
    assert model.get_layer("flatten").output_shape == (None, left * left * 3)


def test_settings_reach_the_layers():
    model = cnn(
        input_shape=(16, 16, 3),
        num_classes=4,
        filters=(2, 3, 4),
        kernel_size=3,
        dense_units=5,
        dropout_rate=0.25,
    )
    assert model.get_layer("conv3").kernel.shape == (3, 3, 3, 4)
    assert model.get_layer("dense").units == 5
    assert model.get_layer("dropout").rate == 0.25


def test_zero_dropout_rate_adds_no_dropout_layer():
    model = cnn(input_shape=(8, 8, 1), num_classes=2, dense_units=4, dropout_rate=0.0)
    assert "dropout" not in [layer.name for layer in model.layers]


@pytest.mark.parametrize(
    ("hidden_units", "parameters"),
    [((128, 64), 785 * 128 + 129 * 64 + 65 * 10), ((), 785 * 10), ((7,), 785 * 7 + 8 * 10)],
)
def test_parameter_count_follows_the_hidden_units(hidden_units, parameters):
    model = mlp(input_shape=(28, 28, 1), num_classes=10, hidden_units=hidden_units)
    assert model.count_params() == parameters


def test_mlp_without_hidden_layers_is_linear():
    model = mlp(input_shape=(4,), num_classes=3, hidden_units=(), input_dtype="float32")
    x = np.random.default_rng(1).normal(size=(5, 4)).astype("float32")
    kernel, bias = model.get_weights()
    np.testing.assert_allclose(model(x), x @ kernel + bias, rtol=1e-5, atol=1e-6)


def test_dropout_is_active_only_in_training():
    model = mlp(input_shape=(4,), num_classes=3, dropout_rate=0.5)
    x = np.full((2, 4), 9, "uint8")
    np.testing.assert_array_equal(model(x), model(x))
    assert np.any(model(x, training=True).numpy() != model(x).numpy())
    assert [layer.name for layer in model.layers].count("dropout2") == 1
