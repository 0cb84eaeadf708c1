"""Properties of every network for small images."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.models.cnn import cnn
from orbit_runner.models.mlp import mlp
from orbit_runner.models.resnet_cifar import resnet_cifar

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
