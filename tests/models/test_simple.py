"""The multilayer perceptron and the small convolutional network."""

from __future__ import annotations

import numpy as np

from orbit_runner.models.simple import cnn, mlp


def _dense(inputs: int, outputs: int) -> int:
    return (inputs + 1) * outputs


def test_default_cnn_has_the_expected_parameter_count():
    model = cnn(input_shape=(28, 28, 1), num_classes=10)
    convolutions = _dense(5 * 5 * 1, 32) + _dense(5 * 5 * 32, 64)
    assert convolutions + _dense(7 * 7 * 64, 1024) + _dense(1024, 10) == 3_274_634
    assert model.count_params() == 3_274_634


def test_zero_dropout_rate_adds_no_dropout_layer():
    model = cnn(input_shape=(8, 8, 1), num_classes=2, dense_units=4, dropout_rate=0.0)
    assert "dropout" not in [layer.name for layer in model.layers]


def test_mlp_without_hidden_layers_is_linear():
    model = mlp(input_shape=(4,), num_classes=3, hidden_units=(), input_dtype="float32")
    x = np.random.default_rng(1).normal(size=(5, 4)).astype("float32")
    kernel, bias = model.get_weights()
    np.testing.assert_allclose(model(x), x @ kernel + bias, rtol=1e-5, atol=1e-6)
