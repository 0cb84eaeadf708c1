"""Replaces gradients that TensorFlow cannot compute with deterministic ops, on a GPU or with XLA.

They are registered for ops and not for layers, so all models have the replacements: ours, those of
Model Garden and those of users. Those of max pooling are in `max_pooling.py`.

- Batch normalization in inference mode, such as that of a frozen layer: TensorFlow's kernel on a
  GPU is not deterministic. In training mode, it has another.
- Nearest-neighbor resizing, such as that of `UpSampling2D`: XLA has no kernel for TensorFlow's
  gradient (`ResizeNearestNeighborGrad`), and on a GPU, it has no deterministic op. The bits of the
  replacement are those of TensorFlow's kernel on a CPU.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import tensorflow as tf

from orbit_runner.determinism.max_pooling import replace_max_pool_gradient
from orbit_runner.determinism.patches import install, set_scope
from orbit_runner.tf_internals import MissingInternal, gradients_by_op

if TYPE_CHECKING:
    # The gradients of an op, or that of its only input.
    Gradients: TypeAlias = tf.Tensor | Sequence[tf.Tensor | None] | None


_NONE = -1


def replace_nearest_gradient(op: tf.Operation, grad: tf.Tensor) -> list[tf.Tensor | None] | None:
    """Returns the gradients of the inputs of `ResizeNearestNeighbor`: images and size.

    Returns None if the sizes are not known when the function is traced.
    """
    images = op.inputs[0]
    if not images.shape[1:3].is_fully_defined() or not grad.shape[1:3].is_fully_defined():
        return None
    options = {name: op.get_attr(name) for name in ("align_corners", "half_pixel_centers")}
    rows, columns = (
        _outputs_of_inputs(images.shape[axis], grad.shape[axis], **options) for axis in (1, 2)
    )
    return [nearest_gradient(grad, rows, columns, images.shape), None]


def nearest_gradient(
    grad: tf.Tensor, rows: np.ndarray, columns: np.ndarray, shape: tf.TensorShape
) -> tf.Tensor:
    """Returns the gradient of nearest-neighbor resizing with respect to its inputs.

    An input has the sum of the gradients of its outputs, row by row, as on a CPU.

    Args:
        grad: The gradient of the outputs, [batch, height, width, channels].
        rows: The rows of the outputs that are copies of a row of the inputs, int64
            [most copies, rows of the inputs]; -1 if there are fewer.
        columns: The same for columns.
        shape: The shape of the inputs.

    Returns:
        The gradient, with the shape of the inputs and the type of `grad`.
    """
    with tf.name_scope("ResizeNearestNeighborGradient"):
        zero = tf.zeros([], grad.dtype)
        # Subtracted, because TensorFlow changes the order of additions outside of XLA.
        negative = -grad
        total = tf.zeros([1, 1, 1, 1], grad.dtype)
        for row in rows:
            of_row = _take(negative, row, axis=1)
            for column in columns:
                total -= _take(of_row, column, axis=2)
        # A sum that starts with 0 is never -0, but XLA leaves out the first addition.
        return tf.ensure_shape(tf.where(tf.equal(total, 0), zero, total), shape)


def _take(values: tf.Tensor, indices: np.ndarray, axis: int) -> tf.Tensor:
    """Returns the values at some indices of an axis; zeros where an index is -1."""
    steps = np.unique(np.diff(indices))
    if indices.min() >= 0 and len(steps) <= 1:
        step = int(steps[0]) if len(steps) else 1
        part = slice(int(indices[0]), int(indices[-1]) + 1, step)
        return values[:, part] if axis == 1 else values[:, :, part]
    gathered = tf.gather(values, np.maximum(indices, 0), axis=axis)
    is_there = np.reshape(indices != _NONE, [1, -1, 1, 1] if axis == 1 else [1, 1, -1, 1])
    return tf.where(is_there, gathered, tf.zeros([], values.dtype))


def _outputs_of_inputs(size: int, outputs: int, **options: bool) -> np.ndarray:
    """Returns the outputs that are copies of each input, int64 [most copies, size]; else -1."""
    # The op itself tells which input each output is a copy of, with its rounding.
    with tf.init_scope(), tf.device("CPU:0"):
        ramp = tf.reshape(tf.range(size), [1, size, 1, 1])
        resized = tf.raw_ops.ResizeNearestNeighbor(images=ramp, size=[outputs, 1], **options)
        inputs = resized.numpy().ravel()
    copies = [np.flatnonzero(inputs == index) for index in range(size)]
    table = np.full([max(map(len, copies)), size], _NONE, np.int64)
    for index, outputs_of_input in enumerate(copies):
        table[: len(outputs_of_input), index] = outputs_of_input
    return table


def replace_frozen_gradient(
    op: tf.Operation, grad: tf.Tensor, *_: tf.Tensor | None
) -> list[tf.Tensor | None] | None:
    """Returns the gradients of the inputs of `FusedBatchNorm`: images, scale and offset.

    `grad` is the gradient of the normalized images. Returns None in training mode.
    """
    if op.get_attr("is_training"):
        return None
    images, scale, _, mean, variance = op.inputs
    data_format = op.get_attr("data_format").decode()
    channels = data_format.index("C")
    sizes = [1] * len(data_format)
    sizes[channels] = -1
    with tf.name_scope("FrozenBatchNormGradient"):
        # The statistics are float32, also those of float16 and bfloat16 images.
        grads = tf.cast(grad, scale.dtype)
        centered = tf.cast(images, scale.dtype) - tf.reshape(mean, sizes)
        inverse = tf.math.rsqrt(variance + op.get_attr("epsilon"))
        others = [axis for axis in range(len(sizes)) if axis != channels]
        of_scale = tf.reduce_sum(grads * centered, others) * inverse
        of_images = tf.cast(grads * tf.reshape(scale * inverse, sizes), images.dtype)
        return [of_images, of_scale, tf.reduce_sum(grads, others), None, None]


# From an op and the gradients of its outputs to the gradients of its inputs; to None if the
# replacement does not support the op.
Replacement = Callable[..., list[tf.Tensor | None] | None]
_REPLACEMENTS: dict[str, Replacement] = {
    "MaxPool": replace_max_pool_gradient,  # The op of 1-D pooling, too.
    "MaxPoolV2": replace_max_pool_gradient,
    "MaxPool3D": replace_max_pool_gradient,
    "ResizeNearestNeighbor": replace_nearest_gradient,
    "FusedBatchNorm": replace_frozen_gradient,
    "FusedBatchNormV2": replace_frozen_gradient,
    "FusedBatchNormV3": replace_frozen_gradient,
}
_BATCH_NORM = frozenset({"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"})
# The ops whose gradients have no deterministic kernel in programs of XLA, and on a GPU without it.
WITH_XLA = frozenset(_REPLACEMENTS) - _BATCH_NORM
ON_GPUS = _BATCH_NORM | {"ResizeNearestNeighbor"}


_replaced: ContextVar[frozenset[str]] = ContextVar("replaced", default=frozenset())


@contextlib.contextmanager
def replaced_gradients_scope(ops: frozenset[str]) -> Iterator[None]:
    """Replaces the gradients of some types of ops, if they are traced in a `with` block."""
    if ops:
        install("gradient_patches", _install_replacements)
    with set_scope(_replaced, ops):
        yield


def _install_replacements() -> None:
    # TensorFlow looks up gradients here. Registering one a second time is an error.
    for name, replacement in _REPLACEMENTS.items():
        registered = gradients_by_op.get(name, {})
        if "type" not in registered:
            raise MissingInternal(f"gradient of {name} to replace")
        registered["type"] = _patch_gradient(name, registered["type"], replacement)


def _patch_gradient(
    name: str, original: Callable[..., Gradients], replacement: Replacement
) -> Callable[..., Gradients]:
    @functools.wraps(original)
    def compute_gradient(op: tf.Operation, *grads: tf.Tensor) -> Gradients:
        gradients = replacement(op, *grads) if name in _replaced.get() else None
        if gradients is None:
            return original(op, *grads)
        return gradients[0] if len(gradients) == 1 else gradients

    return compute_gradient
