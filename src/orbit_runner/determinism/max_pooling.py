"""A gradient of max pooling that XLA compiles deterministically.

TensorFlow refuses to compile its own gradient (`MaxPoolGrad`) if ops must be deterministic. The
replacement consists of ops that every device computes in the same order, and its bits are those of
TensorFlow's kernel on a CPU.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

_LAYOUTS = ("NHWC", "NCHW", "NDHWC", "NCDHW")


def replace_max_pool_gradient(op: tf.Operation, grad: tf.Tensor) -> list[tf.Tensor | None] | None:
    """Returns the gradients of the inputs of `MaxPool`, `MaxPoolV2` or `MaxPool3D`.

    Returns None if the op is not supported.
    """
    pooling = _pooling_of(op)
    if pooling is None:
        return None
    gradient = max_pool_gradient(op.inputs[0], grad, **pooling)
    # The other inputs of `MaxPoolV2` are sizes.
    return [gradient, *[None] * (len(op.inputs) - 1)]


def _pooling_of(op: tf.Operation) -> dict[str, Any] | None:
    """Returns the arguments of an op for `max_pool_gradient`, or None if it is not supported."""
    if len(op.inputs) == 1:
        window = op.get_attr("ksize")
        strides = op.get_attr("strides")
    else:
        window, strides = map(tf.get_static_value, op.inputs[1:])
    layout = op.get_attr("data_format").decode()
    channels = layout.find("C")
    # Pooling across examples or channels has no gradient in TensorFlow, either.
    if window is None or strides is None or layout not in _LAYOUTS:
        return None
    if any(int(sizes[axis]) != 1 for sizes in (window, strides) for axis in (0, channels)):
        return None
    padding: str | list[int] = op.get_attr("padding").decode()
    if padding == "EXPLICIT":
        padding = [int(before) for before in op.get_attr("explicit_paddings")[::2]]
    return {
        "window": [int(size) for size in window],
        "strides": [int(size) for size in strides],
        "padding": padding,
        "channels": channels,
    }


@dataclasses.dataclass(frozen=True)
class _Axis:
    """A spatial axis. Its padded input is cut into blocks, each as long as the stride.

    Sizes are integers or, if they are not known when the function is traced, int32 scalars.
    """

    size: int | tf.Tensor
    outputs: int | tf.Tensor
    window: int
    stride: int
    before: int | tf.Tensor  # The padding before the input.

    @property
    def blocks(self) -> int | tf.Tensor:
        """The number of blocks that contain the input and all windows."""
        covering = -(-(self.size + self.before) // self.stride)
        return _larger(covering, self.outputs + (self.window - 1) // self.stride)

    @property
    def after(self) -> int | tf.Tensor:
        """The padding after the input."""
        return self.blocks * self.stride - self.before - self.size

    def is_inside(self, offset: int) -> tf.Tensor:
        """Returns whether a position of each window is in the input and not in its padding."""
        positions = tf.range(self.outputs) * self.stride + (offset - self.before)
        return (positions >= 0) & (positions < self.size)


def max_pool_gradient(
    inputs: tf.Tensor,
    grad: tf.Tensor,
    *,
    window: Sequence[int],
    strides: Sequence[int],
    padding: str | Sequence[int],
    channels: int,
) -> tf.Tensor:
    """Returns the gradient of max pooling with respect to its inputs.

    The first of several equal maxima of a window has the gradient. An input in several windows has
    the sum of their gradients in the order of the outputs. Both are as in TensorFlow's kernels for
    a CPU, except that in 3-D (`MaxPool3DGrad`), each of several equal maxima has the gradient; in
    XLA, only the first has it, as here.

    Args:
        inputs: The inputs, `[batch, *sizes, channels]` or `[batch, channels, *sizes]`.
        grad: The gradient of the outputs, with the same layout and type.
        window: The size of the window on each axis; 1 for batch and channels.
        strides: The stride on each axis; 1 for batch and channels.
        padding: `SAME`, `VALID`, or the padding before each axis.
        channels: The axis of the channels.

    Returns:
        The gradient, with the shape and type of `inputs`.
    """
    if channels != len(window) - 1:
        last = [axis for axis in range(len(window)) if axis != channels] + [channels]
        gradient = max_pool_gradient(
            tf.transpose(inputs, last),
            tf.transpose(grad, last),
            window=[window[axis] for axis in last],
            strides=[strides[axis] for axis in last],
            padding=padding if isinstance(padding, str) else [padding[axis] for axis in last],
            channels=len(window) - 1,
        )
        return tf.transpose(gradient, [last.index(axis) for axis in range(len(window))])
    with tf.name_scope("MaxPoolGradient"):
        axes = _spatial_axes(inputs, grad, window, strides, padding)
        offsets = [*itertools.product(*(range(axis.window) for axis in axes))]
        first = _first_maxima(inputs, axes, offsets)
        # Subtracted, because TensorFlow changes the order of additions outside of XLA.
        negative = -grad
        parts = [
            _sum_of_part(first, negative, axes, offsets, remainders)
            for remainders in itertools.product(*(range(axis.stride) for axis in axes))
        ]
        gradient = _crop(_join_parts(parts, axes), axes)
        # A sum that starts with 0 is never -0, but XLA leaves out the first addition.
        gradient = tf.where(tf.equal(gradient, 0), tf.zeros([], grad.dtype), gradient)
        return tf.ensure_shape(gradient, inputs.shape)


def _spatial_axes(
    inputs: tf.Tensor,
    grad: tf.Tensor,
    window: Sequence[int],
    strides: Sequence[int],
    padding: str | Sequence[int],
) -> list[_Axis]:
    axes = []
    for index in range(1, len(window) - 1):
        size = _size(inputs, index)
        outputs = _size(grad, index)
        if padding == "SAME":
            missing = (outputs - 1) * strides[index] + window[index] - size
            before = _larger(missing, 0) // 2
        else:
            before = 0 if padding == "VALID" else padding[index]
        axes.append(_Axis(size, outputs, window[index], strides[index], before))
    return axes


def _first_maxima(
    inputs: tf.Tensor, axes: Sequence[_Axis], offsets: Sequence[tuple[int, ...]]
) -> tf.Tensor:
    """Returns the number of the offset at which each window has its first maximum, int32.

    It compares as TensorFlow's kernel does, so also NaN gives the same result.
    """
    paddings = [[0, 0], *([axis.before, axis.after] for axis in axes), [0, 0]]
    blocks = itertools.chain(*((axis.blocks, axis.stride) for axis in axes))
    cut = tf.reshape(tf.pad(inputs, paddings), [_size(inputs, 0), *blocks, _size(inputs, -1)])
    outputs = [_size(inputs, 0), *(axis.outputs for axis in axes), _size(inputs, -1)]
    most = tf.zeros(outputs, inputs.dtype)
    first = tf.fill(outputs, -1)
    for number, offset in enumerate(offsets):
        at: list[slice | int] = [slice(None)]
        for position, axis in zip(offset, axes, strict=True):
            block, remainder = divmod(position, axis.stride)
            at += [slice(block, block + axis.outputs), remainder]
        values = cut[tuple(at)]
        is_larger = _is_inside(offset, axes) & ((values > most) | (first < 0))
        most = tf.where(is_larger, values, most)
        first = tf.where(is_larger, number, first)
    return first


def _is_inside(offset: Sequence[int], axes: Sequence[_Axis]) -> tf.Tensor:
    """Returns whether a position of each window is in the input, bool [1, *outputs, 1]."""
    inside = tf.ones([], tf.bool)
    for index, (position, axis) in enumerate(zip(offset, axes, strict=True)):
        shape = [-1 if index == other else 1 for other in range(len(axes))]
        inside &= tf.reshape(axis.is_inside(position), [1, *shape, 1])
    return inside


def _sum_of_part(
    first: tf.Tensor,
    negative: tf.Tensor,
    axes: Sequence[_Axis],
    offsets: Sequence[tuple[int, ...]],
    remainders: Sequence[int],
) -> tf.Tensor:
    """Returns the gradient of the inputs that have the same place in their blocks.

    The shape is [batch, *blocks, channels]. `negative` is the negative gradient of the outputs.
    """
    sizes = [_size(negative, 0), *(axis.blocks for axis in axes), _size(negative, -1)]
    total = tf.zeros(sizes, negative.dtype)
    # From the last block of a window to its first, which is the order of the outputs.
    shifts = [
        range((axis.window - 1 - remainder) // axis.stride, -1, -1)
        for axis, remainder in zip(axes, remainders, strict=True)
    ]
    for blocks in itertools.product(*shifts):
        places = zip(blocks, axes, remainders, strict=True)
        offset = tuple(block * axis.stride + remainder for block, axis, remainder in places)
        gradient = tf.where(first == offsets.index(offset), negative, tf.zeros([], negative.dtype))
        paddings = [
            [block, axis.blocks - block - axis.outputs]
            for block, axis in zip(blocks, axes, strict=True)
        ]
        total -= tf.pad(gradient, [[0, 0], *paddings, [0, 0]])
    return total


def _join_parts(parts: Sequence[tf.Tensor], axes: Sequence[_Axis]) -> tf.Tensor:
    """Returns the padded gradient: the inputs of all places in the order of their positions."""
    rank = len(axes)
    batch = _size(parts[0], 0)
    channels = _size(parts[0], -1)
    strides = [axis.stride for axis in axes]
    blocks = [axis.blocks for axis in axes]
    stacked = tf.reshape(tf.stack(parts, axis=1), [batch, *strides, *blocks, channels])
    pairs = ((1 + rank + index, 1 + index) for index in range(rank))
    ordered = tf.transpose(stacked, [0, *itertools.chain(*pairs), 1 + 2 * rank])
    return tf.reshape(ordered, [batch, *(axis.blocks * axis.stride for axis in axes), channels])


def _crop(padded: tf.Tensor, axes: Sequence[_Axis]) -> tf.Tensor:
    sizes = (slice(axis.before, axis.before + axis.size) for axis in axes)
    inner = (slice(None), *sizes)
    return padded[inner]


def _size(tensor: tf.Tensor, axis: int) -> int | tf.Tensor:
    size = tensor.shape[axis]
    return tf.shape(tensor)[axis] if size is None else size


def _larger(left: int | tf.Tensor, right: int | tf.Tensor) -> int | tf.Tensor:
    if isinstance(left, int) and isinstance(right, int):
        return max(left, right)
    return tf.maximum(left, right)
