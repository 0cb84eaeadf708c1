"""NeuMF, and the normalization of pixels."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.models.configs import NeuMFConfig
from orbit_runner.models.layers import ImageInput, Normalize
from orbit_runner.models.simple import neumf

USERS, ITEMS = np.array([0, 3, 6, 3], "int32"), np.array([4, 0, 1, 1], "int32")


def _weights(model):
    return {variable.name.partition(":")[0]: variable.numpy() for variable in model.variables}


def _expected(weights, depth):
    x = np.concatenate(
        [weights["mlp_user/embeddings"][USERS], weights["mlp_item/embeddings"][ITEMS]], 1
    )
    for layer in range(1, depth + 1):
        name = f"mlp_dense{layer}"
        x = np.maximum(x @ weights[f"{name}/kernel"] + weights[f"{name}/bias"], 0)
    factors = weights["mf_user/embeddings"][USERS] * weights["mf_item/embeddings"][ITEMS]
    top = np.concatenate([factors, x], 1) @ weights["logit/kernel"] + weights["logit/bias"]
    return top[:, 0]


@pytest.mark.parametrize("sizes", [(12, 6, 4), (8,)])
def test_logits_are_those_of_the_formula(sizes):
    model = neumf(NeuMFConfig(mf_dim=3, layers=sizes), num_users=7, num_items=5)
    generator = np.random.default_rng(1)
    for variable in model.variables:
        variable.assign(generator.normal(size=variable.shape))
    logits = model({"user": USERS, "item": ITEMS}).numpy()
    assert (logits.shape, logits.dtype) == ((4,), np.float32)
    expected = _expected(_weights(model), len(sizes) - 1)
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)


def test_logits_are_float32_under_every_policy(policy):
    model = neumf(NeuMFConfig(), num_users=7, num_items=5)
    assert model({"user": USERS, "item": ITEMS}).dtype == "float32"


_MEAN = (125.3, 123.0, 113.9)
_STD = (63.0, 62.1, 66.7)


def _pixels(dtype="uint8"):
    return np.random.default_rng(3).integers(0, 256, (4, 5, 6, 3)).astype(dtype)


@pytest.mark.parametrize("mean", [None, _MEAN, (120.0,)])
@pytest.mark.parametrize("std", [None, _STD, (64.0,)])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_normalized_values_match_numpy(mean, std, dtype):
    inputs, x = ImageInput((5, 6, 3), 1, mean, std, dtype).normalized()
    pixels = _pixels(dtype)
    expected = (pixels.astype("float32") - np.float32(mean or 0)) / np.float32(std or 1)
    np.testing.assert_allclose(tf_keras.Model(inputs, x)(pixels), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("fraction", [0, 1 / 3])
def test_arithmetic_is_float32_and_rounded_once(policy, fraction):
    """Neither the mean nor a pixel of thirds fits 16 bits: an early cast would show."""
    pixels = _pixels() + np.float32(fraction) if fraction else _pixels()
    mean = (125.3, 123.7, 113.9)
    exact = (tf.constant(pixels, tf.float32) - mean) / _STD
    got = Normalize(mean, _STD)(pixels)
    assert got.dtype == policy.compute_dtype
    np.testing.assert_array_equal(got, tf.cast(exact, policy.compute_dtype))


@pytest.mark.parametrize("argument", ["mean", "std"])
def test_number_of_constants_must_match_the_channels(argument):
    constants = {"mean": None, "std": None, argument: (1.0, 2.0)}
    with pytest.raises(ValueError, match=rf"`{argument}` \(\(1.0, 2.0\)\) must have 1 value or 3"):
        ImageInput((5, 6, 3), 1, **constants).normalized()


@pytest.mark.parametrize("std", [(1.0, 0.0, 1.0), (-1.0,), (float("nan"),)])
def test_std_must_be_positive(std):
    with pytest.raises(ValueError, match=r"`std` .* must be positive"):
        Normalize(None, std)
