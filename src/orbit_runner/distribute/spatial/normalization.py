"""Batch normalization over all parts, with the moving averages of the unpartitioned layer.

Ioffe and Szegedy 2015 ("Batch normalization"), algorithm 1. The moments of the parts are combined
as in Chan et al. 1979 ("Updating formulae and a pairwise algorithm for computing sample
variances"), which avoids the cancellation in a difference of sums of squares.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow as tf
import tf_keras

from orbit_runner.distribute.spatial import batch_norm_kernels as kernels
from orbit_runner.distribute.spatial.grid import Grid
from orbit_runner.distribute.spatial.placement import run_on_device, run_on_device_with_gradient
from orbit_runner.distribute.spatial.rules import Call, Layer, Rule, register

_LEAST_EPSILON = 1.001e-5


@dataclasses.dataclass(frozen=True)
class Moments:
    """The moments of each channel, over all pixels of all parts."""

    count: tf.Tensor  # float32 scalar, the number of pixels.
    mean: tf.Tensor  # float32 [channels].
    variance: tf.Tensor  # float32 [channels], the sum of squares divided by `count`.


def _refusal(layer: Layer) -> str | None:
    if list(layer.axis) not in ([3], [-1]):
        return f"normalizes axis {list(layer.axis)}, but the channels are axis 3"
    if layer.renorm or layer.virtual_batch_size is not None or layer.adjustment is not None:
        return "uses renorm, virtual_batch_size or adjustment"
    return None


def _run_batch_norm(layer: Layer, call: Call, grid: Grid) -> Grid:
    # Keras keeps all of these in float32 if activations have 16 bits.
    dtype = layer.moving_mean.dtype
    gamma = tf.convert_to_tensor(layer.gamma) if layer.scale else tf.ones([grid.channels], dtype)
    beta = tf.convert_to_tensor(layer.beta) if layer.center else tf.zeros([grid.channels], dtype)
    if call.training and layer.trainable:
        grid, moments = _compute_moments(grid, dtype)
        if layer.synchronized:
            moments = _reduce_over_replicas(moments)
        _update_moving_averages(layer, moments)
        mean, variance = moments.mean, moments.variance
    else:
        mean = tf.convert_to_tensor(layer.moving_mean)
        variance = tf.convert_to_tensor(layer.moving_variance)
    # TensorFlow's fused kernels require at least this value.
    epsilon = max(layer.epsilon, _LEAST_EPSILON) if layer.fused else layer.epsilon
    return _normalize(grid, mean, variance, gamma, beta, epsilon)


def _normalize(
    grid: Grid,
    mean: tf.Tensor,
    variance: tf.Tensor,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    epsilon: float,
) -> Grid:
    """Normalizes each part; only the parts, in their own dtype, are kept for the gradient."""

    def forward(
        x: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor
    ) -> list[tf.Tensor]:
        return [kernels.normalize(x, mean, variance, gamma, beta, epsilon)]

    def normalize_part(device: str, part: tf.Tensor) -> tf.Tensor:
        def backward(
            upstream: Sequence[tf.Tensor], inputs: Sequence[tf.Tensor], _: object
        ) -> list[tf.Tensor]:
            (x, mean, variance, gamma, _), (upstream_gradient,) = inputs, upstream
            x_gradient, gamma_gradient, beta_gradient = kernels.gradients(
                upstream_gradient, x, mean, variance, gamma, epsilon, device
            )
            scale = tf.math.rsqrt(variance + epsilon)
            mean_gradient, variance_gradient = (
                -gamma * scale * beta_gradient,
                -gamma * scale**2 * gamma_gradient / 2,
            )
            return [x_gradient, mean_gradient, variance_gradient, gamma_gradient, beta_gradient]

        values = (mean, variance, gamma, beta)
        return run_on_device_with_gradient(device, forward, backward, part, *values)[0]

    return grid.map_parts(normalize_part)


def _compute_moments(grid: Grid, dtype: tf.DType) -> tuple[Grid, Moments]:
    """Returns the parts, whose gradients are added on their devices, and their moments."""

    def forward(x: tf.Tensor) -> list[tf.Tensor]:
        count = tf.cast(tf.reduce_prod(tf.shape(x)[:3]), dtype)
        return [tf.identity(x), count, *kernels.moments(x, count)]

    def backward(
        upstream: Sequence[tf.Tensor], inputs: Sequence[tf.Tensor], outputs: Sequence[tf.Tensor]
    ) -> list[tf.Tensor]:
        (upstream_gradient, _, mean_gradient, variance_gradient), (x,), (_, count, mean, _) = (
            upstream,
            inputs,
            outputs,
        )
        slope = 2.0 * variance_gradient / count
        return [upstream_gradient + kernels.affine(x, slope, mean_gradient / count - slope * mean)]

    results = [
        run_on_device_with_gradient(grid.layout.device(place), forward, backward, part)
        for place, part in grid.parts.items()
    ]
    parts, counts, means, variances = zip(*results, strict=True)

    def combine_moments(*values: tf.Tensor) -> list[tf.Tensor]:
        number = len(parts)
        counts = tf.stack(values[:number])
        shares = (counts / tf.reduce_sum(counts))[:, None]
        means = tf.stack(values[number : 2 * number])
        mean = tf.reduce_sum(shares * means, axis=0)
        spread = tf.stack(values[2 * number :]) + tf.square(means - mean)
        return [tf.reduce_sum(counts), mean, tf.reduce_sum(shares * spread, axis=0)]

    moments = run_on_device(grid.layout.first, combine_moments, *counts, *means, *variances)
    return grid.replace_parts(parts), Moments(*moments)


def _reduce_over_replicas(own: Moments) -> Moments:
    replica = tf.distribute.get_replica_context()
    if replica is None or replica.num_replicas_in_sync == 1:
        return own
    squares = own.variance + tf.square(own.mean)
    sums = tf.concat([own.count[None], own.count * own.mean, own.count * squares], axis=0)
    count, sums = tf.split(
        replica.all_reduce(tf.distribute.ReduceOp.SUM, sums), [1, sums.shape[0] - 1]
    )
    mean, squares = tf.split(sums / count, 2)
    return Moments(count[0], mean, tf.maximum(squares - tf.square(mean), 0.0))


def _update_moving_averages(layer: Layer, moments: Moments) -> None:
    variance = moments.variance
    if layer.fused:
        # TensorFlow's fused kernel returns the unbiased variance, the others do not.
        variance *= moments.count / tf.maximum(moments.count - 1.0, 1.0)

    # Rounded to float32 whatever the dtype of the variables is, as in Keras.
    share = tf.cast(tf.constant(1.0 - layer.momentum, tf.float32), variance.dtype)

    def assign(variable: tf.Variable, value: tf.Tensor) -> tf.Tensor:
        old, new = tf.convert_to_tensor(variable), tf.stop_gradient(value)
        return variable.assign(old - (old - new) * share)

    layer.add_update(lambda: assign(layer.moving_mean, moments.mean))
    layer.add_update(lambda: assign(layer.moving_variance, variance))


register(tf_keras.layers.BatchNormalization, tf_keras.layers.experimental.SyncBatchNormalization)(
    Rule(_run_batch_norm, _refusal)
)
