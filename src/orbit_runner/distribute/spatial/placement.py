"""Work on one device, its gradient included.

A `tf.device` block does not reach the backward pass: a `tf.GradientTape` makes the gradient's ops
under the device of the code that asks for the gradient. Towers that are written with such blocks
alone keep their activations apart, and then run the whole backward pass on the first device, where
all the activations come together again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

Forward = Callable[..., Sequence[tf.Tensor]]
Backward = Callable[..., Sequence[tf.Tensor | None]]


def run_on_device(
    device: str, forward: Forward, *tensors: tf.Tensor, recompute: bool = False
) -> list[tf.Tensor]:
    """Runs a function on a device, and its gradient too.

    Args:
        device: Its name, such as `GPU:1`.
        forward: From tensors to a sequence of tensors. It reads no variables, since their gradient
            would be lost: hand in their values.
        *tensors: What it is given, on any device.
        recompute: Whether to keep nothing but the inputs, and to run the function again for the
            gradient. Where the gradient does not need what the function does last (a convolution's
            does not), only what comes before is run again.

    Returns:
        The outputs, on the device.
    """
    if recompute:
        return run_on_device_with_gradient(device, forward, _again(forward), *tensors)
    taped: list[Any] = []

    def recorded(*inputs: tf.Tensor) -> list[tf.Tensor]:
        outputs, tape = _record(forward, inputs)
        taped[:] = [tape, outputs, inputs]
        return outputs

    def backward(upstream: Sequence[tf.Tensor], *_: Any) -> list[tf.Tensor | None]:
        tape, outputs, inputs = taped
        return tape.gradient(outputs, inputs, upstream)

    return run_on_device_with_gradient(device, recorded, backward, *tensors)


def _again(forward: Forward) -> Backward:
    def backward(
        upstream: Sequence[tf.Tensor], inputs: Sequence[tf.Tensor], _: Sequence[tf.Tensor]
    ) -> list[tf.Tensor | None]:
        outputs, tape = _record(forward, inputs)
        return tape.gradient(outputs, inputs, upstream)

    return backward


def _record(
    forward: Forward, inputs: Sequence[tf.Tensor]
) -> tuple[list[tf.Tensor], tf.GradientTape]:
    with tf.GradientTape() as tape:
        tape.watch([tensor for tensor in inputs if tensor.dtype.is_floating])
        return list(forward(*inputs)), tape


def run_on_device_with_gradient(
    device: str, forward: Forward, backward: Backward, *tensors: tf.Tensor
) -> list[tf.Tensor]:
    """Runs a function on a device, and on the same device another one for its gradient.

    Args:
        device: Its name.
        forward: As in `run_on_device`.
        backward: Is given the gradients of the outputs, the tensors and the outputs, each a
            sequence, and returns the gradients of the tensors; None for those without. What it does
            not use is not kept.
        *tensors: What `forward` is given.

    Returns:
        The outputs.
    """

    @tf.custom_gradient
    def run(*inputs: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., Any]]:
        outputs = list(forward(*inputs))

        def gradient(*upstream: tf.Tensor) -> Sequence[tf.Tensor | None]:
            with tf.device(device):
                # Ops run as soon as they can. Without the wait, those which need nothing of the
                # backward pass would run in the forward pass, and their results be kept until then.
                with tf.control_dependencies(upstream):
                    late = [tf.identity(tensor) for tensor in inputs]
                return backward(upstream, late, outputs)

        return outputs, gradient

    with tf.device(device):
        return run(*tensors)


def fan_out(device: str, tensor: tf.Tensor, count: int) -> list[tf.Tensor]:
    """Gives a tensor to several readers, whose gradients are added up on its device.

    Args:
        device: Where it is.
        tensor: Any.
        count: The number of readers.

    Returns:
        The tensor, `count` times; nothing is copied in memory.
    """
    if count < 2:
        return [tensor] * count

    def forward(x: tf.Tensor) -> list[tf.Tensor]:
        return [tf.identity(x) for _ in range(count)]

    def backward(upstream: Sequence[tf.Tensor], *_: Any) -> list[tf.Tensor]:
        return [tf.add_n(upstream)]

    return run_on_device_with_gradient(device, forward, backward, tensor)
