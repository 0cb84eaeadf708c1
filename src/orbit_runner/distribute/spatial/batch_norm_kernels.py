"""What batch normalisation does on one part: TensorFlow's fused kernels where they will do.

They make one pass where single ops make several, and take 16 bits as they are. In training they
normalise by the moments of what they are given; as in evaluation, they are handed the moments of
all parts.
"""

from __future__ import annotations

import tensorflow as tf

_PIXELS = [0, 1, 2]


def _has_fused_kernel(x: tf.Tensor) -> bool:
    return x.dtype != tf.float64


def moments(x: tf.Tensor, count: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes the moments of a part.

    Args:
        x: `[batch, height, width, channels]`.
        count: The number of its pixels, a scalar.

    Returns:
        Mean and variance, [channels], the latter divided by `count`.
    """
    if not _has_fused_kernel(x):
        return tf.nn.moments(x, _PIXELS)
    ones, none = tf.ones([x.shape[-1]]), tf.zeros([0])
    kernel = tf.raw_ops.FusedBatchNormV3(x=x, scale=ones, offset=ones, mean=none, variance=none)
    # The kernel divides by one less.
    return kernel.batch_mean, kernel.batch_variance * (tf.maximum(count - 1.0, 1.0) / count)


def normalize(
    x: tf.Tensor,
    mean: tf.Tensor,
    variance: tf.Tensor,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    epsilon: float,
) -> tf.Tensor:
    """Normalises a part by given moments.

    Args:
        x: `[batch, height, width, channels]`.
        mean: [channels].
        variance: [channels].
        gamma: [channels], the scale that comes after.
        beta: [channels], the shift after that.
        epsilon: What is added to the variance.

    Returns:
        The shape and type of `x`.
    """
    if not _has_fused_kernel(x):
        scale = gamma * tf.math.rsqrt(variance + epsilon)
        return x * scale + (beta - mean * scale)
    return tf.raw_ops.FusedBatchNormV3(
        x=x,
        scale=gamma,
        offset=beta,
        mean=mean,
        variance=variance,
        epsilon=epsilon,
        is_training=False,
    ).y


def gradients(
    above: tf.Tensor,
    x: tf.Tensor,
    mean: tf.Tensor,
    variance: tf.Tensor,
    gamma: tf.Tensor,
    epsilon: float,
    device: str,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Computes the gradients of `normalize`, the moments taken as given.

    Args:
        above: The gradient of its output.
        x: Its input.
        mean: [channels].
        variance: [channels].
        gamma: [channels].
        epsilon: What was added to the variance.
        device: Where this is.

    Returns:
        The gradients of `x`, `gamma` and `beta`.
    """
    # On a GPU the kernel adds in any order, and refuses where runs have to be repeatable.
    if _has_fused_kernel(x) and "GPU" not in device.upper():
        kernel = tf.raw_ops.FusedBatchNormGradV3(
            y_backprop=above,
            x=x,
            scale=gamma,
            reserve_space_1=mean,
            reserve_space_2=variance,
            reserve_space_3=tf.zeros([0]),
            epsilon=epsilon,
            is_training=False,
        )
        return kernel.x_backprop, kernel.scale_backprop, kernel.offset_backprop
    wide, scale = tf.cast(above, mean.dtype), tf.math.rsqrt(variance + epsilon)
    centred = tf.cast(x, mean.dtype) - mean
    for_gamma = scale * tf.reduce_sum(wide * centred, _PIXELS)
    return tf.cast(wide * (gamma * scale), x.dtype), for_gamma, tf.reduce_sum(wide, _PIXELS)


def affine(x: tf.Tensor, scale: tf.Tensor, shift: tf.Tensor) -> tf.Tensor:
    """Scales and shifts each channel.

    Args:
        x: `[batch, height, width, channels]`.
        scale: [channels].
        shift: [channels].

    Returns:
        The shape and type of `x`.
    """
    # cuDNN has a least epsilon; together with the variance it makes one.
    epsilon = 1e-3
    variance = tf.fill(tf.shape(scale), tf.constant(1.0 - epsilon, scale.dtype))
    return normalize(x, tf.zeros_like(scale), variance, scale, shift, epsilon)
