"""The multilayer perceptron and the small convolutional network."""

from __future__ import annotations

import numpy as np
import pytest

from orbit_runner.models.simple import cnn, mlp


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
