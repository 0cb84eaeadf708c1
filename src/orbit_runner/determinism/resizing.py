"""A gradient of nearest-neighbor resizing, such as that of `UpSampling2D`, that XLA compiles.

XLA has no kernel for TensorFlow's gradient (`ResizeNearestNeighborGrad`), and on a GPU, it has no
deterministic one. The bits of the replacement are those of TensorFlow's kernel on a CPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

_NONE = -1


def replace_nearest_gradient(op: Any, grad: tf.Tensor) -> list[tf.Tensor | None] | None:
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
    taken = tf.gather(values, np.maximum(indices, 0), axis=axis)
    is_there = np.reshape(indices != _NONE, [1, -1, 1, 1] if axis == 1 else [1, 1, -1, 1])
    return tf.where(is_there, taken, tf.zeros([], values.dtype))


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
