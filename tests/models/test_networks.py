"""Properties of every image network."""

import functools
from collections import defaultdict

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.models.layers import ImageInput
from orbit_runner.registry import IMAGE_MODELS

_SMALL = {
    "cnn": ("cnn", {"dense_units": 16}),
    "mlp": ("mlp", {}),
    "mlp_dropout": ("mlp", {"dropout_rate": 0.2}),
    "resnet_cifar_v1": ("resnet_cifar", {"depth": 14, "version": 1}),
    "resnet_cifar_v2": ("resnet_cifar", {"depth": 20, "version": 2}),
}
_LARGE = {
    "resnet": ("resnet", {"depth": 18}),
    "vit": ("vit", {"model_name": "vit-ti16"}),
    "efficientnet": ("efficientnet", {"model_id": "b0"}),
    "application": ("application", {"application": "MobileNetV2"}),
}
_ALL = [*_SMALL, *(pytest.param(kind, marks=pytest.mark.slow) for kind in _LARGE)]
_CLASSES = 7
_MEAN, _STD = (125.0, 123.0, 114.0), (63.0, 62.0, 66.0)


def _build(kind, dtype="uint8", mean=_MEAN):
    name, settings = (_SMALL | _LARGE)[kind]
    entry = IMAGE_MODELS.get(name)
    images = ImageInput(_shape(kind), _CLASSES, mean, _STD, dtype)
    return entry.load()(entry.load_config()(name=name, **settings), images)


@functools.cache
def _built(kind):
    tf_keras.utils.set_random_seed(3)
    return _build(kind, "float32")


def _shape(kind):
    return (16, 16, 3) if kind in _SMALL else (32, 32, 3)


def _pixels(kind, dtype="uint8"):
    return np.random.default_rng(7).integers(0, 256, (8, *_shape(kind))).astype(dtype)


@pytest.mark.sample(2)
@pytest.mark.alternating
@pytest.mark.parametrize("kind", _ALL)
def test_logits_and_variables_are_float32_under_every_policy(kind, policy):
    model = _build(kind)

    logits = model(_pixels(kind))

    assert (logits.dtype, logits.shape) == (tf.float32, (8, _CLASSES))
    assert np.all(np.isfinite(logits))
    assert model.output_shape == (None, _CLASSES)
    assert {variable.dtype for variable in model.variables} == {tf.float32}
    hidden = {
        layer.compute_dtype for layer in model.layers if layer.name not in ("image", "logits")
    }
    assert hidden == {policy.compute_dtype}


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", _ALL)
def test_two_builds_from_one_seed_have_equal_names_and_weights(kind):
    first = _built(kind)
    tf_keras.utils.set_random_seed(3)
    second = _build(kind, "float32")

    names = [variable.name for variable in first.variables]
    assert len(set(names)) == len(names)
    assert names == [variable.name for variable in second.variables]
    assert [layer.name for layer in first.layers] == [layer.name for layer in second.layers]
    assert first.name == second.name
    for name, one, two in zip(names, first.get_weights(), second.get_weights(), strict=True):
        np.testing.assert_array_equal(one, two, err_msg=name)


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", _LARGE)
def test_kernels_of_equal_shape_start_with_different_values(kind):
    kernels = defaultdict(list)
    for variable in _built(kind).trainable_variables:
        if "kernel" in variable.name and not variable.name.startswith("logits"):
            kernels[tuple(variable.shape)].append(variable.numpy().tobytes())

    assert max(map(len, kernels.values())) > 2
    for shape, values in kernels.items():
        assert len(set(values)) == len(values), shape


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", _ALL)
def test_normalization_subtracts_the_mean(kind):
    """Shifting the pixels and the mean by the same amount leaves the logits unchanged."""
    plain = _built(kind)
    shifted = _build(kind, mean=(135.0, 133.0, 124.0))
    weights = [np.random.default_rng(0).normal(size=x.shape) if x.ndim == 2 else x
               for x in plain.get_weights()]  # fmt: skip
    pixels = (_pixels(kind) // 2).astype("uint8")
    before = plain.get_weights()
    plain.set_weights(weights)
    shifted.set_weights(weights)

    logits = plain(pixels.astype("float32"))
    plain.set_weights(before)

    assert np.std(logits) > 0
    np.testing.assert_allclose(shifted(pixels + 10), logits, rtol=1e-3, atol=1e-3)


def _check_gradients(model, kind):
    kernel = model.get_layer("logits").kernel
    before = kernel.numpy()
    kernel.assign(np.random.default_rng(0).normal(size=kernel.shape))

    with tf.GradientTape() as tape:
        logits = model(_pixels(kind, "float32"), training=True)
        entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(8) % _CLASSES, logits)
        loss = tf.reduce_mean(entropy)
    gradients = tape.gradient(loss, model.trainable_variables)
    kernel.assign(before)

    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        assert gradient is not None, variable.name
        assert np.all(np.isfinite(gradient)), variable.name
        assert np.any(gradient), variable.name


@pytest.mark.sample(2)
@pytest.mark.alternating
@pytest.mark.parametrize("kind", _SMALL)
def test_a_gradient_reaches_every_variable_under_every_policy(kind, policy):
    _check_gradients(_build(kind, "float32"), kind)


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", _LARGE)
def test_a_gradient_reaches_every_variable_of_large_networks(kind):
    _check_gradients(_built(kind), kind)


@pytest.mark.parametrize("kind", ["mlp", "resnet_cifar_v1"])
def test_model_can_be_rebuilt_from_its_config(kind):
    model = _build(kind)
    rebuilt = tf_keras.Model.from_config(model.get_config())
    rebuilt.set_weights(model.get_weights())
    assert [x.name for x in rebuilt.variables] == [x.name for x in model.variables]
    np.testing.assert_array_equal(rebuilt(_pixels(kind)), model(_pixels(kind)))
