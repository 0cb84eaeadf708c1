"""Runs functions and their gradients on one device.

A `tf.device` block does not apply to the backward pass: a `tf.GradientTape` creates the ops of the
gradient on the device of the code that asks for the gradient. A model that uses only such blocks
keeps its activations on separate devices, but then runs the whole backward pass on the first
device, where all activations come together again.
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
    """Runs a function and its gradient on a device, such as `GPU:1`, and returns the outputs.

    `forward` maps tensors, which may be on any device, to a sequence of tensors. It must not read
    variables, because their gradients would be lost; pass their values instead. If `recompute`,
    only the inputs are kept, and the function is run again for the gradient. Its last ops are not
    run again if the gradient does not need their outputs (that of a convolution does not).
    """
    if recompute:
        return run_on_device_with_gradient(
            device, forward, _recomputing_backward(forward), *tensors
        )
    tape_state: list[Any] = []

    def forward_with_tape(*inputs: tf.Tensor) -> list[tf.Tensor]:
        outputs, tape = _record(forward, inputs)
        tape_state[:] = [tape, outputs, inputs]
        return outputs

    def backward(upstream: Sequence[tf.Tensor], *_: object) -> list[tf.Tensor | None]:
        tape, outputs, inputs = tape_state
        return tape.gradient(outputs, inputs, upstream)

    return run_on_device_with_gradient(device, forward_with_tape, backward, *tensors)


def _recomputing_backward(forward: Forward) -> Backward:
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
    """Runs a function, and another for its gradient, on a device; returns the outputs.

    `forward` is as in `run_on_device`. `backward` is called with the gradients of the outputs, the
    inputs and the outputs, each a sequence, and returns the gradients of the inputs; None for
    inputs without one. Tensors that it does not use are not kept.
    """

    @tf.custom_gradient
    def run(*inputs: tf.Tensor) -> tuple[list[tf.Tensor], Backward]:
        outputs = list(forward(*inputs))

        def gradient(*upstream: tf.Tensor) -> Sequence[tf.Tensor | None]:
            with tf.device(device):
                # Ops run as soon as possible. Without this dependency, ops that need nothing from
                # the backward pass would run in the forward pass, and their results would be kept.
                with tf.control_dependencies(upstream):
                    late = [tf.identity(tensor) for tensor in inputs]
                return backward(upstream, late, outputs)

        return outputs, gradient

    with tf.device(device):
        return run(*tensors)


def fan_out(device: str, tensor: tf.Tensor, count: int) -> list[tf.Tensor]:
    """Returns a tensor `count` times, so that the gradients are added on its device.

    Nothing is copied in memory.
    """
    if count < 2:
        return [tensor] * count

    def forward(x: tf.Tensor) -> list[tf.Tensor]:
        return [tf.identity(x) for _ in range(count)]

    def backward(upstream: Sequence[tf.Tensor], *_: object) -> list[tf.Tensor]:
        return [tf.add_n(upstream)]

    return run_on_device_with_gradient(device, forward, backward, tensor)
