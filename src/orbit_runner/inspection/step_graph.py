"""Traces one training step on a given batch, with static shapes."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from orbit_runner.inspection.layers import LayerCalls
from orbit_runner.inspection.scale import Gradient
from orbit_runner.utils.autograph import convert
from orbit_runner.utils.flops import step_flops


@dataclasses.dataclass(frozen=True)
class StepGraph:
    """A traced training step.

    Attributes:
        function: The concrete function, which takes the batch.
        calls: The calls of the model's layers in the step.
        flops: Floating-point operations of the step; None if unknown.
        gradients: The gradients that the optimizer gets.
    """

    function: Any
    calls: LayerCalls
    flops: int | None
    gradients: tuple[Gradient, ...] = ()

    def run(self, batch: Any) -> None:
        """Runs the step, which changes the weights."""
        self.function(*tf.nest.flatten(batch, expand_composites=True))


def trace_step(
    trainer: Any, task: Any, model: Any, batch: Any, pieces: int = 1, shards: int = 1
) -> StepGraph:
    """Traces a step of a trainer on a batch.

    Args:
        trainer: The trainer, whose strategy has a single replica.
        task: The task of the trainer.
        model: The model that the step trains.
        batch: The batch of a replica.
        pieces: `trainer.gradient_accumulation_steps`.
        shards: The number of logical replicas that the device computes.
    """
    calls = LayerCalls(model)
    step = convert(trainer.train_step, task)

    def one_step(*tensors: Any) -> None:
        packed = tf.nest.pack_sequence_as(batch, tensors, expand_composites=True)
        step(iter([packed]))

    tensors = tf.nest.flatten(batch, expand_composites=True)
    specs = [tf.TensorSpec(one.shape, one.dtype) for one in tensors]
    gradients: dict[int, Gradient] = {}
    with calls.recorded_scope(), _recorded_gradients_scope(trainer.state.optimizer, gradients):
        traced = tf.function(one_step, autograph=False).get_concrete_function(*specs)
    flops = step_flops(traced.graph, pieces)
    if shards > 1 and flops is not None:
        # The loops over shards cannot be told from those over the pieces of a batch.
        flops = flops * shards if pieces <= 2 else None
    return StepGraph(traced, calls, flops, (*gradients.values(),))


@contextlib.contextmanager
def _recorded_gradients_scope(optimizer: Any, gradients: dict[int, Gradient]) -> Iterator[None]:
    """Records the gradients that the optimizer gets, by the `id` of the weight.

    If the strategy had several replicas, the optimizer would reduce them first.
    """
    apply_gradients = optimizer.apply_gradients

    def record(grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        pairs = [*grads_and_vars]
        for gradient, variable in pairs:
            if gradient is not None:
                gradients[id(variable)] = describe_gradient(gradient, variable)
        return apply_gradients(pairs, *args, **kwargs)

    optimizer.apply_gradients = record
    try:
        yield
    finally:
        del optimizer.apply_gradients


def describe_gradient(gradient: Any, variable: Any) -> Gradient:
    """Returns what a replica sends of a gradient: a tensor, or rows if it is sparse."""
    name, dtype = variable.name.partition(":")[0], gradient.dtype.name
    if isinstance(gradient, tf.IndexedSlices):
        parts = (gradient.values, gradient.indices)
        if all(part.shape.is_fully_defined() for part in parts):
            size = sum(part.shape.num_elements() * part.dtype.size for part in parts)
            return Gradient(name, dtype, size, is_sparse=True)
    return Gradient(name, dtype, variable.shape.num_elements() * gradient.dtype.size)


def trace_model(
    model: Any, calls: LayerCalls, features: Any = None, *, training: bool = True
) -> None:
    """Records the layers in a call of a model: on one example if it declares its inputs.

    If it does not, the call is on `features`, nested tensors; without them, nothing is recorded.
    """
    declared = getattr(model, "inputs", None)
    if declared:
        specs = [tf.TensorSpec([1, *one.shape[1:]], one.dtype) for one in declared]
        features = specs[0] if len(specs) == 1 else specs
    elif features is not None:
        features = tf.nest.map_structure(lambda one: tf.TensorSpec(one.shape, one.dtype), features)
    else:
        return

    def call(inputs: Any) -> Any:
        return model(inputs, training=training)

    with calls.recorded_scope():
        tf.function(call, autograph=False).get_concrete_function(features)
