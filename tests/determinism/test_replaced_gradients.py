"""Gradients that XLA compiles deterministically, against those of TensorFlow's kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tensorflow.python.framework import config

from orbit_runner.determinism.gradient_patches import compilable_gradients_scope

Function = Callable[[tf.Tensor], tf.Tensor]


@pytest.fixture(autouse=True)
def restored_determinism() -> Iterator[None]:
    was_enabled = config.is_op_determinism_enabled()
    config.disable_op_determinism()
    yield
    if was_enabled:
        tf.config.experimental.enable_op_determinism()
    else:
        config.disable_op_determinism()


@pytest.fixture
def deterministic_ops(restored_determinism: None) -> None:
    tf.config.experimental.enable_op_determinism()


def _gradient(function: Function, weights: tf.Tensor, *, replaced: bool) -> Function:
    def gradient(x: tf.Tensor) -> tf.Tensor:
        def compute() -> tf.Tensor:
            with tf.GradientTape() as tape:
                tape.watch(x)
                outputs = function(x)
            return tape.gradient(outputs, x, weights)

        if not replaced:
            return compute()
        with compilable_gradients_scope():
            return compute()

    return gradient


def _check_equal(function: Function, x: tf.Tensor, weights: tf.Tensor, *, xla: bool = True) -> None:
    """Compares the bits of the replacement, with and without XLA, to those of TensorFlow."""
    expected = _gradient(function, weights, replaced=False)(x).numpy()
    gradient = _gradient(function, weights, replaced=True)
    for jit_compile in (None, True) if xla else (None,):
        actual = tf.function(gradient, jit_compile=jit_compile)(x).numpy()
        assert actual.tobytes() == expected.tobytes(), f"jit_compile={jit_compile}"


def _values(rng: np.random.Generator, shape: tuple[int, ...], dtype: tf.DType) -> tf.Tensor:
    """Returns values with many ties, and in some cases NaN and infinities."""
    values = rng.integers(-2, 3, shape) if rng.random() < 0.6 else rng.normal(size=shape)
    values = values.astype(np.float64)
    if rng.random() < 0.2:
        values[rng.random(shape) < 0.2] = rng.choice([np.nan, np.inf, -np.inf])
    return tf.cast(values, dtype)


def _weights(rng: np.random.Generator, outputs: tf.Tensor) -> tf.Tensor:
    values = rng.normal(size=outputs.shape)
    values[rng.random(outputs.shape) < 0.1] = -0.0
    return tf.cast(values, outputs.dtype)


def _random_case(seed: int, *, pads: bool = False) -> tuple[Function, tf.Tensor, tf.Tensor]:
    """Returns a pooling, its inputs, and the weights of its outputs."""
    rng = np.random.default_rng(seed)
    dtype = (tf.float32, tf.float64, tf.float16, tf.bfloat16)[seed % 4]
    window, strides = rng.integers(1, 5, 2).tolist(), rng.integers(1, 5, 2).tolist()
    sizes = rng.integers(4, 12, 2).tolist()
    padding: Any = str(rng.choice(["SAME", "VALID"]))
    if pads:
        padding = [[0, 0], *rng.integers(0, [[size, size] for size in window]).tolist(), [0, 0]]
    x = _values(rng, (2, *sizes, 3), dtype)

    def pool(x: tf.Tensor) -> tf.Tensor:
        return tf.nn.max_pool2d(x, window, strides, padding)

    return pool, x, _weights(rng, pool(x))


@pytest.mark.parametrize("seed", range(12))
def test_gradient_of_random_poolings_has_the_bits_of_tensorflow(seed: int) -> None:
    _check_equal(*_random_case(seed))


@pytest.mark.wide
def test_gradient_of_200_random_poolings_has_the_bits_of_tensorflow() -> None:
    for seed in range(100, 300):
        _check_equal(*_random_case(seed))


@pytest.mark.parametrize("seed", range(8))
def test_explicit_paddings_have_the_bits_of_tensorflow(seed: int) -> None:
    """XLA has no kernel for them."""
    _check_equal(*_random_case(seed, pads=True), xla=False)


LAYERS = {
    "1-D": (tf_keras.layers.MaxPooling1D(3, 2, padding="same"), (2, 9, 3)),
    "2-D": (tf_keras.layers.MaxPooling2D(3, 2, padding="same"), (2, 9, 8, 3)),
    "dilated": (lambda x: tf.nn.pool(x, [2, 2], "MAX", dilations=[2, 3]), (2, 9, 8, 3)),
    "sizes as tensors": (
        lambda x: tf.raw_ops.MaxPoolV2(
            input=x, ksize=[1, 3, 2, 1], strides=[1, 2, 2, 1], padding="SAME"
        ),
        (2, 9, 8, 3),
    ),
    "large window": (tf_keras.layers.MaxPooling2D(7, 1), (1, 9, 8, 2)),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.usefixtures("deterministic_ops")
def test_gradient_of_every_kind_of_max_pooling_is_replaced(name: str) -> None:
    pool, shape = LAYERS[name]
    rng = np.random.default_rng(1)
    x = tf.constant(rng.integers(-2, 3, shape), tf.float32)

    _check_equal(pool, x, _weights(rng, pool(x)))


def test_gradient_in_3_d_is_that_of_xla() -> None:
    """TensorFlow's kernel for a CPU gives it to each of several equal maxima, XLA to the first."""
    rng = np.random.default_rng(4)
    x = tf.constant(rng.integers(-2, 3, (2, 4, 6, 4, 3)), tf.float32)
    pool = tf_keras.layers.MaxPooling3D(2)
    weights = _weights(rng, pool(x))
    of_xla = tf.function(_gradient(pool, weights, replaced=False), jit_compile=True)(x)
    tf.config.experimental.enable_op_determinism()

    for jit_compile in (None, True):
        gradient = _gradient(pool, weights, replaced=True)
        actual = tf.function(gradient, jit_compile=jit_compile)(x)
        np.testing.assert_array_equal(actual, of_xla)


@pytest.mark.usefixtures("deterministic_ops")
def test_channels_may_come_before_the_sizes() -> None:
    """Only XLA has a kernel for this layout on a CPU."""
    rng = np.random.default_rng(2)
    x = tf.constant(rng.integers(-2, 3, (2, 3, 9, 8)), tf.float32)
    weights = tf.constant(rng.normal(size=(2, 3, 5, 4)), tf.float32)
    last = [0, 2, 3, 1]

    def pool_first(x: tf.Tensor) -> tf.Tensor:
        return tf.nn.max_pool2d(x, 3, 2, "SAME", data_format="NCHW")

    def pool_last(x: tf.Tensor) -> tf.Tensor:
        return tf.nn.max_pool2d(x, 3, 2, "SAME")

    actual = tf.function(_gradient(pool_first, weights, replaced=True), jit_compile=True)(x)
    transposed = tf.transpose(weights, last)
    expected = _gradient(pool_last, transposed, replaced=False)(tf.transpose(x, last))
    np.testing.assert_array_equal(tf.transpose(actual, last), expected)


def test_sizes_may_be_unknown_when_the_function_is_traced() -> None:
    rng = np.random.default_rng(3)
    x = tf.constant(rng.integers(-2, 3, (2, 9, 8, 3)), tf.float32)

    def pool(x: tf.Tensor) -> tf.Tensor:
        return tf.nn.max_pool2d(x, 3, 2, "SAME")

    weights = _weights(rng, pool(x))
    expected = _gradient(pool, weights, replaced=False)(x)
    signature = [tf.TensorSpec([None] * 4, tf.float32)]
    for jit_compile in (None, True):
        gradient = _gradient(pool, weights, replaced=True)
        actual = tf.function(gradient, signature, jit_compile=jit_compile)(x)
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.usefixtures("deterministic_ops")
def test_gradients_have_gradients() -> None:
    x = tf.random.stateless_normal([2, 6, 6, 2], [1, 2])

    def penalty(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                loss = tf.reduce_sum(tf.nn.max_pool2d(x, 3, 2, "SAME") ** 3)
            gradient = inner.gradient(loss, x)
            total = tf.reduce_sum(gradient**2)
        return outer.gradient(total, x)

    def replaced(x: tf.Tensor) -> tf.Tensor:
        with compilable_gradients_scope():
            return penalty(x)

    actual = tf.function(replaced, jit_compile=True)(x)
    np.testing.assert_allclose(actual, penalty(x), rtol=1e-5)


@pytest.mark.usefixtures("deterministic_ops")
def test_tensorflow_refuses_the_gradient_outside_of_the_scope() -> None:
    """If it compiles, this version of TensorFlow needs no replacement."""
    x = tf.zeros([1, 4, 4, 1])
    with compilable_gradients_scope():
        pass

    def pool(x: tf.Tensor) -> tf.Tensor:
        return tf.nn.max_pool2d(x, 2, 2, "SAME")

    gradient = _gradient(pool, tf.ones([1, 2, 2, 1]), replaced=False)
    with pytest.raises(tf.errors.UnimplementedError, match="deterministic XLA implementation"):
        tf.function(gradient, jit_compile=True)(x)


# Nearest-neighbor resizing


@pytest.mark.parametrize("seed", range(8))
def test_gradient_of_random_resizing_has_the_bits_of_tensorflow(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dtype = (tf.float32, tf.float64, tf.float16, tf.bfloat16)[seed % 4]
    sizes, outputs = rng.integers(1, 9, 2).tolist(), rng.integers(1, 25, 2).tolist()
    x = _values(rng, (2, *sizes, 3), dtype)
    corners = {0: {}, 1: {"align_corners": True}, 2: {"half_pixel_centers": True}}[seed % 3]

    def resize(x: tf.Tensor) -> tf.Tensor:
        return tf.raw_ops.ResizeNearestNeighbor(images=x, size=outputs, **corners)

    _check_equal(resize, x, _weights(rng, resize(x)))


@pytest.mark.parametrize("factor", [2, (3, 1)])
def test_gradient_of_upsampling_has_the_bits_of_tensorflow(factor: Any) -> None:
    rng = np.random.default_rng(5)
    upsample = tf_keras.layers.UpSampling2D(factor)
    x = _values(rng, (2, 5, 4, 3), tf.float32)

    _check_equal(upsample, x, _weights(rng, upsample(x)))


def test_resizing_of_unknown_sizes_has_the_gradient_of_tensorflow() -> None:
    rng = np.random.default_rng(6)
    x = _values(rng, (2, 5, 4, 3), tf.float32)
    upsample = tf_keras.layers.UpSampling2D(2)
    weights = _weights(rng, upsample(x))
    gradient = _gradient(upsample, weights, replaced=True)

    actual = tf.function(gradient, [tf.TensorSpec([None] * 3 + [3], tf.float32)])(x)
    np.testing.assert_array_equal(actual, _gradient(upsample, weights, replaced=False)(x))
