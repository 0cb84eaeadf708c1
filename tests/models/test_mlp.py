from __future__ import annotations

import numpy as np
import pytest

from orbit_runner.models.mlp import mlp


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
