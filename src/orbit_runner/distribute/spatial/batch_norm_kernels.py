"""Batch normalization of one part, with TensorFlow's fused kernels if possible.

The fused kernels make one pass where single ops make several, and accept 16-bit inputs. In training
mode they normalize by the moments of their own input, so they are called in inference mode, with
the moments of all parts.
"""

from __future__ import annotations

import tensorflow as tf

_PIXELS = [0, 1, 2]


def _has_fused_kernel(x: tf.Tensor) -> bool:
    return x.dtype != tf.float64


def moments(x: tf.Tensor, count: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the mean and the variance of a part, both [channels].

    `x` is [batch, height, width, channels]. `count`, a scalar, is the number of its pixels; the
    variance is divided by it.
    """
    if not _has_fused_kernel(x):
        return tf.nn.moments(x, _PIXELS)
    ones = tf.ones([x.shape[-1]])
    none = tf.zeros([0])
    kernel = tf.raw_ops.FusedBatchNormV3(x=x, scale=ones, offset=ones, mean=none, variance=none)
    # The kernel divides by `count - 1`.
    return kernel.batch_mean, kernel.batch_variance * (tf.maximum(count - 1.0, 1.0) / count)


def normalize(
    x: tf.Tensor,
    mean: tf.Tensor,
    variance: tf.Tensor,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    epsilon: float,
) -> tf.Tensor:
    """Returns `x` normalized by given moments, in the same shape and dtype.

    `x` is [batch, height, width, channels]; the other tensors are [channels]. The normalized values
    are multiplied by `gamma`, and `beta` is added.
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
    upstream_gradient: tf.Tensor,
    x: tf.Tensor,
    mean: tf.Tensor,
    variance: tf.Tensor,
    gamma: tf.Tensor,
    epsilon: float,
    device: str,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the gradients of `x`, `gamma` and `beta` in `normalize`, for constant moments.

    `upstream_gradient` is the gradient of its output, and `device` the device of its input.
    """
    # On a GPU, the kernel is not deterministic, and raises an error if determinism is enabled.
    if _has_fused_kernel(x) and "GPU" not in device.upper():
        kernel = tf.raw_ops.FusedBatchNormGradV3(
            y_backprop=upstream_gradient,
            x=x,
            scale=gamma,
            reserve_space_1=mean,
            reserve_space_2=variance,
            reserve_space_3=tf.zeros([0]),
            epsilon=epsilon,
            is_training=False,
        )
        return kernel.x_backprop, kernel.scale_backprop, kernel.offset_backprop
    wide = tf.cast(upstream_gradient, mean.dtype)
    scale = tf.math.rsqrt(variance + epsilon)
    centered = tf.cast(x, mean.dtype) - mean
    gamma_gradient = scale * tf.reduce_sum(wide * centered, _PIXELS)
    return tf.cast(wide * (gamma * scale), x.dtype), gamma_gradient, tf.reduce_sum(wide, _PIXELS)


def affine(x: tf.Tensor, scale: tf.Tensor, shift: tf.Tensor) -> tf.Tensor:
    """Returns `x` with each channel scaled and shifted, in the same shape and dtype.

    `x` is [batch, height, width, channels]; `scale` and `shift` are [channels].
    """
    # cuDNN has a minimum epsilon. The sum of epsilon and variance is one.
    epsilon = 1e-3
    variance = tf.fill(tf.shape(scale), tf.constant(1.0 - epsilon, scale.dtype))
    return normalize(x, tf.zeros_like(scale), variance, scale, shift, epsilon)
