from __future__ import annotations

import pytest

from orbit_runner.models.cnn import cnn


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
