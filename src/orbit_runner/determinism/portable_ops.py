"""Replaces the ops whose kernels use approximate instructions of the processor.

`rsqrtps` and `rcpps` give about twelve correct bits. The others depend on the manufacturer, even
after the iterations with which Eigen refines them. TensorFlow's kernels use them for `rsqrt`,
`reciprocal`, softmax and fused batch normalization; the gradients of `log`, `log1p` and others take
a reciprocal. The replacements use square roots and divisions, which every processor rounds in the
same way. Their gradients follow from the ops that they consist of.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import tensorflow as tf

from orbit_runner.determinism.patches import install
from orbit_runner.tf_internals import replace_functions

if TYPE_CHECKING:
    from tensorflow.types.experimental import TensorLike

    from orbit_runner.utils.types import Tensors


_enabled = False


def use_portable_ops(enabled: bool) -> None:
    """Decides whether ops that are created from now on are replaced."""
    global _enabled
    if enabled:
        install("portable_ops", _install_patches)
    if enabled or _enabled:
        # They rewrite `1 / x` and `x / constant` with a reciprocal, and `x / sqrt(y)` with `rsqrt`.
        rewrites = ("constant_folding", "arithmetic_optimization")
        tf.config.optimizer.set_experimental_options(dict.fromkeys(rewrites, not enabled))
    _enabled = enabled


def is_enabled() -> bool:
    """Returns whether ops that are created now are replaced."""
    return _enabled


def _install_patches() -> None:
    replace_functions(
        {
            name: functools.partial(_patch_op, replacement=replacement)
            for name, replacement in REPLACEMENTS.items()
        }
    )


def _patch_op(
    original: Callable[..., Tensors], replacement: Callable[..., Tensors]
) -> Callable[..., Tensors]:
    @functools.wraps(original)
    def create(*args: object, **kwargs: object) -> Tensors:
        return (replacement if _enabled else original)(*args, **kwargs)

    return create


def _rsqrt(x: TensorLike, name: str | None = None) -> tf.Tensor:
    with tf.name_scope(name or "Rsqrt"):
        root = tf.sqrt(x)
        return tf.ones_like(root) / root


def _reciprocal(x: TensorLike, name: str | None = None) -> tf.Tensor:
    with tf.name_scope(name or "Reciprocal"):
        return tf.raw_ops.RealDiv(x=tf.ones_like(x), y=x)


def _softmax(logits: TensorLike, name: str | None = None) -> tf.Tensor:
    with tf.name_scope(name or "Softmax"):
        logits = tf.convert_to_tensor(logits)
        most = tf.stop_gradient(tf.reduce_max(logits, -1, keepdims=True))
        powers = tf.exp(logits - most)
        return powers / tf.reduce_sum(powers, -1, keepdims=True)


def _fused_batch_norm(
    x: TensorLike,
    scale: TensorLike,
    offset: TensorLike,
    mean: TensorLike,
    variance: TensorLike,
    epsilon: float = 0.0001,
    exponential_avg_factor: float = 1.0,
    data_format: str = "NHWC",
    is_training: bool = True,
    name: str | None = None,
) -> tuple[tf.Tensor, ...]:
    """Returns the six outputs of the op; the last is only for a GPU."""
    with tf.name_scope(name or "FusedBatchNormV3"):
        x = tf.convert_to_tensor(x)
        scale = tf.convert_to_tensor(scale)
        channels = data_format.index("C")
        axes = [axis for axis in range(len(data_format)) if axis != channels]
        shape = [-1 if axis == channels else 1 for axis in range(len(data_format))]
        wide = tf.cast(x, scale.dtype)
        now, spread = mean, variance
        if is_training:
            now = tf.reduce_mean(wide, axes)
            spread = tf.reduce_mean(tf.square(wide - tf.reshape(now, shape)), axes)
        factor = scale / tf.sqrt(spread + tf.cast(epsilon, scale.dtype))
        y = (wide - tf.reshape(now, shape)) * tf.reshape(factor, shape) + tf.reshape(offset, shape)
        y = tf.cast(y, x.dtype)
        if not is_training:
            return y, mean, variance, mean, variance, tf.zeros([], scale.dtype)
        count = tf.cast(tf.size(x) // tf.maximum(tf.size(now), 1), scale.dtype)
        unbiased = spread * (count / tf.maximum(count - 1, 1))
        kept = tuple(map(tf.stop_gradient, (now, unbiased)))
        if exponential_avg_factor != 1.0:
            before = (mean, variance)
            kept = tuple(
                old + exponential_avg_factor * (new - old)
                for old, new in zip(before, kept, strict=True)
            )
        return y, *kept, now, spread, tf.zeros([], scale.dtype)


REPLACEMENTS: dict[str, Callable[..., Tensors]] = {
    "rsqrt": _rsqrt,
    "reciprocal": _reciprocal,
    "reciprocal_of_gradients": _reciprocal,
    "softmax": _softmax,
    "fused_batch_norm": _fused_batch_norm,
}
