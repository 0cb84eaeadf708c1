"""Gradients that XLA compiles deterministically, against those of TensorFlow's kernels."""

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.determinism.gradient_patches import (
    ON_GPUS,
    WITH_XLA,
    replace_frozen_gradient,
    replaced_gradients_scope,
)
from orbit_runner.tf_internals import disable_op_determinism
from orbit_runner.train import gradients
from tests.support.digits import digits_config
from tests.support.toy import make_strategy

Function = Callable[[tf.Tensor], tf.Tensor]


@pytest.fixture
def deterministic_ops():
    tf.config.experimental.enable_op_determinism()


def _gradient(function, weights, *, replaced):
    def gradient(x):
        def compute():
            with tf.GradientTape() as tape:
                tape.watch(x)
                outputs = function(x)
            return tape.gradient(outputs, x, weights)

        if not replaced:
            return compute()
        with replaced_gradients_scope(WITH_XLA):
            return compute()

    return gradient


def _check_equal(function, x, weights, *, xla=True):
    """Compares the bits of the replacement, with and without XLA, to those of TensorFlow."""
    expected = _gradient(function, weights, replaced=False)(x).numpy()
    gradient = _gradient(function, weights, replaced=True)
    for jit_compile in (None, True) if xla else (None,):
        actual = tf.function(gradient, jit_compile=jit_compile)(x).numpy()
        assert actual.tobytes() == expected.tobytes(), f"jit_compile={jit_compile}"


def _values(rng, shape, dtype):
    """Returns values with many ties, and in some cases NaN and infinities."""
    values = rng.integers(-2, 3, shape) if rng.random() < 0.6 else rng.normal(size=shape)
    values = values.astype(np.float64)
    if rng.random() < 0.2:
        values[rng.random(shape) < 0.2] = rng.choice([np.nan, np.inf, -np.inf])
    return tf.cast(values, dtype)


def _weights(rng, outputs):
    values = rng.normal(size=outputs.shape)
    values[rng.random(outputs.shape) < 0.1] = -0.0
    return tf.cast(values, outputs.dtype)


def _random_case(seed, *, pads=False):
    """Returns a pooling, its inputs, and the weights of its outputs."""
    rng = np.random.default_rng(seed)
    dtype = (tf.float32, tf.float64, tf.float16, tf.bfloat16)[seed % 4]
    window, strides = rng.integers(1, 5, 2).tolist(), rng.integers(1, 5, 2).tolist()
    sizes = rng.integers(4, 12, 2).tolist()
    padding = str(rng.choice(["SAME", "VALID"]))
    if pads:
        padding = [[0, 0], *rng.integers(0, [[size, size] for size in window]).tolist(), [0, 0]]
    x = _values(rng, (2, *sizes, 3), dtype)

    def pool(x):
        return tf.nn.max_pool2d(x, window, strides, padding)

    return pool, x, _weights(rng, pool(x))


@pytest.mark.parametrize("seed", range(12))
def test_gradient_of_random_poolings_has_the_bits_of_tensorflow(seed):
    _check_equal(*_random_case(seed))


@pytest.mark.parametrize("seed", range(8))
def test_explicit_paddings_have_the_bits_of_tensorflow(seed):
    """XLA has no kernel for them."""
    _check_equal(*_random_case(seed, pads=True), xla=False)


LAYERS = {
    "sizes as tensors": (
        lambda x: tf.raw_ops.MaxPoolV2(
            input=x, ksize=[1, 3, 2, 1], strides=[1, 2, 2, 1], padding="SAME"
        ),
        (2, 9, 8, 3),
    ),
    "large window": (tf_keras.layers.MaxPooling2D(7, 1), (1, 9, 8, 2)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.usefixtures("deterministic_ops")
def test_gradient_of_other_poolings_is_replaced(name):
    pool, shape = LAYERS[name]
    rng = np.random.default_rng(1)
    x = tf.constant(rng.integers(-2, 3, shape), tf.float32)

    _check_equal(pool, x, _weights(rng, pool(x)))


def test_gradient_in_3_d_is_that_of_xla():
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
def test_channels_may_come_before_the_sizes():
    """Only XLA has a kernel for this layout on a CPU."""
    rng = np.random.default_rng(2)
    x = tf.constant(rng.integers(-2, 3, (2, 3, 9, 8)), tf.float32)
    weights = tf.constant(rng.normal(size=(2, 3, 5, 4)), tf.float32)
    last = [0, 2, 3, 1]

    def pool_first(x):
        return tf.nn.max_pool2d(x, 3, 2, "SAME", data_format="NCHW")

    def pool_last(x):
        return tf.nn.max_pool2d(x, 3, 2, "SAME")

    actual = tf.function(_gradient(pool_first, weights, replaced=True), jit_compile=True)(x)
    transposed = tf.transpose(weights, last)
    expected = _gradient(pool_last, transposed, replaced=False)(tf.transpose(x, last))
    np.testing.assert_array_equal(tf.transpose(actual, last), expected)


@pytest.mark.slow
def test_sizes_may_be_unknown_when_the_function_is_traced():
    rng = np.random.default_rng(3)
    x = tf.constant(rng.integers(-2, 3, (2, 9, 8, 3)), tf.float32)

    def pool(x):
        return tf.nn.max_pool2d(x, 3, 2, "SAME")

    weights = _weights(rng, pool(x))
    expected = _gradient(pool, weights, replaced=False)(x)
    signature = [tf.TensorSpec([None] * 4, tf.float32)]
    for jit_compile in (None, True):
        gradient = _gradient(pool, weights, replaced=True)
        actual = tf.function(gradient, signature, jit_compile=jit_compile)(x)
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.usefixtures("deterministic_ops")
def test_gradients_have_gradients():
    x = tf.random.stateless_normal([2, 6, 6, 2], [1, 2])

    def penalty(x):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                loss = tf.reduce_sum(tf.nn.max_pool2d(x, 3, 2, "SAME") ** 3)
            gradient = inner.gradient(loss, x)
            total = tf.reduce_sum(gradient**2)
        return outer.gradient(total, x)

    def replaced(x):
        with replaced_gradients_scope(WITH_XLA):
            return penalty(x)

    actual = tf.function(replaced, jit_compile=True)(x)
    np.testing.assert_allclose(actual, penalty(x), rtol=1e-5)


@pytest.mark.usefixtures("deterministic_ops")
def test_tensorflow_refuses_the_gradient_outside_of_the_scope():
    """If it compiles, this version of TensorFlow needs no replacement."""
    x = tf.zeros([1, 4, 4, 1])
    with replaced_gradients_scope(WITH_XLA):
        pass

    def pool(x):
        return tf.nn.max_pool2d(x, 2, 2, "SAME")

    gradient = _gradient(pool, tf.ones([1, 2, 2, 1]), replaced=False)
    with pytest.raises(tf.errors.UnimplementedError, match="deterministic XLA implementation"):
        tf.function(gradient, jit_compile=True)(x)


# Nearest-neighbor resizing


@pytest.mark.parametrize("seed", range(8))
def test_gradient_of_random_resizing_has_the_bits_of_tensorflow(seed):
    rng = np.random.default_rng(seed)
    dtype = (tf.float32, tf.float64, tf.float16, tf.bfloat16)[seed % 4]
    sizes, outputs = rng.integers(1, 9, 2).tolist(), rng.integers(1, 25, 2).tolist()
    x = _values(rng, (2, *sizes, 3), dtype)
    corners = {0: {}, 1: {"align_corners": True}, 2: {"half_pixel_centers": True}}[seed % 3]

    def resize(x):
        return tf.raw_ops.ResizeNearestNeighbor(images=x, size=outputs, **corners)

    _check_equal(resize, x, _weights(rng, resize(x)))


def test_resizing_of_unknown_sizes_has_the_gradient_of_tensorflow():
    rng = np.random.default_rng(6)
    x = _values(rng, (2, 5, 4, 3), tf.float32)
    upsample = tf_keras.layers.UpSampling2D(2)
    weights = _weights(rng, upsample(x))
    gradient = _gradient(upsample, weights, replaced=True)

    actual = tf.function(gradient, [tf.TensorSpec([None] * 3 + [3], tf.float32)])(x)
    np.testing.assert_array_equal(actual, _gradient(upsample, weights, replaced=False)(x))


# Batch normalization of frozen layers


@pytest.mark.parametrize("dtype", [tf.float32, tf.float16, tf.bfloat16])
@pytest.mark.parametrize("is_training", [False, True])
def test_gradient_of_batch_normalization_is_replaced_in_inference_mode_only(dtype, is_training):
    rng = np.random.default_rng(7)
    images = tf.cast(rng.normal(size=[4, 5, 6, 3]), dtype)
    weights = tf.cast(rng.normal(size=images.shape), dtype)
    mean, scale, offset = (tf.constant(rng.normal(size=[3]), tf.float32) for _ in range(3))
    variance = tf.constant(rng.uniform(0.5, 2.0, size=[3]), tf.float32)

    def compute(images):
        with tf.GradientTape() as tape:
            tape.watch([images, scale, offset])
            normalized = tf.raw_ops.FusedBatchNormV3(
                x=images, scale=scale, offset=offset, is_training=is_training,
                mean=mean, variance=variance,
            )[0]  # fmt: skip
        return tape.gradient(normalized, [images, scale, offset], weights)

    @tf.function
    def replaced(images):
        with replaced_gradients_scope(ON_GPUS):
            return compute(images)

    names = [op.name for op in replaced.get_concrete_function(images).graph.get_operations()]
    is_replaced = any("FrozenBatchNormGradient" in name for name in names)
    assert is_replaced != is_training
    assert any("FusedBatchNormGrad" in name for name in names) == is_training
    tolerance = {tf.float32: 1e-5, tf.float16: 1e-3, tf.bfloat16: 1e-2}[dtype]
    for actual, expected in zip(replaced(images), compute(images), strict=True):
        assert actual.dtype == expected.dtype
        actual, expected = tf.cast(actual, tf.float32), tf.cast(expected, tf.float32)
        np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=10 * tolerance)


@pytest.mark.parametrize("data_format", ["NCHW", "NDHWC"])
def test_frozen_gradient_has_the_axes_of_the_data_format(data_format):
    """TensorFlow has no kernel for NCHW on a CPU, so the op is only built."""
    channels = data_format.index("C")
    shape = [2, 3, 4, 5, 6][: len(data_format)]
    rng = np.random.default_rng(8)
    images, weights = (tf.constant(rng.normal(size=shape), tf.float32) for _ in range(2))
    size = shape[channels]
    mean, scale = (tf.constant(rng.normal(size=[size]), tf.float32) for _ in range(2))
    variance = tf.constant(rng.uniform(0.5, 2.0, size=[size]), tf.float32)
    sizes = [size if axis == channels else 1 for axis in range(len(shape))]

    class Op:
        inputs = (images, scale, None, mean, variance)

        def get_attr(self, name):
            return {"is_training": False, "epsilon": 0.1, "data_format": data_format.encode()}[name]

    gradients = replace_frozen_gradient(Op(), weights)
    with tf.GradientTape() as tape:
        offset = tf.zeros([size])
        tape.watch([images, scale, offset])
        mean_, variance_, scale_, offset_ = (
            tf.reshape(x, sizes) for x in (mean, variance, scale, offset)
        )
        normalized = (images - mean_) / tf.sqrt(variance_ + 0.1) * scale_ + offset_
    expected = tape.gradient(normalized, [images, scale, offset], weights)
    for gradient, other in zip(gradients[:3], expected, strict=True):
        np.testing.assert_allclose(gradient, other, rtol=1e-4, atol=1e-5)


# When gradients are replaced


@pytest.mark.parametrize(
    ("changes", "device", "expected"),
    [
        ({}, "CPU:0", frozenset()),
        ({}, "GPU:0", ON_GPUS),
        ({"runtime__enable_xla": True}, "CPU:0", WITH_XLA),
        ({"runtime__enable_xla": True}, "GPU:0", WITH_XLA),
    ],
)
@pytest.mark.usefixtures("deterministic_ops")
def test_replaced_gradients_depend_on_the_device_and_xla(changes, device, expected, monkeypatch):
    monkeypatch.setattr(gradients, "local_devices", lambda _: [device])
    strategy = make_strategy("one_device")
    assert gradients.gradients_to_replace(digits_config(**changes), strategy) == expected
    disable_op_determinism()
    assert not gradients.gradients_to_replace(digits_config(**changes), strategy)
