"""Traces one training step on a given batch, with static shapes."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from orbit_runner.inspection.layers import LayerCalls
from orbit_runner.utils.autograph import convert
from orbit_runner.utils.flops import step_flops


@dataclasses.dataclass(frozen=True)
class StepGraph:
    """A traced training step.

    Attributes:
        function: The concrete function, which takes the batch.
        calls: The calls of the model's layers in the step.
        flops: Floating-point operations of the step; None if unknown.
    """

    function: Any
    calls: LayerCalls
    flops: int | None

    def run(self, batch: Any) -> None:
        """Runs the step, which changes the weights."""
        self.function(*tf.nest.flatten(batch, expand_composites=True))


def trace_step(trainer: Any, task: Any, model: Any, batch: Any, pieces: int = 1) -> StepGraph:
    """Traces a step of a trainer on a batch.

    Args:
        trainer: The trainer, whose strategy has a single replica.
        task: The task of the trainer.
        model: The model that the step trains.
        batch: The batch of a replica.
        pieces: `trainer.gradient_accumulation_steps`.
    """
    calls = LayerCalls(model)
    step = convert(trainer.train_step, task)

    def one_step(*tensors: Any) -> None:
        packed = tf.nest.pack_sequence_as(batch, tensors, expand_composites=True)
        step(iter([packed]))

    tensors = tf.nest.flatten(batch, expand_composites=True)
    specs = [tf.TensorSpec(one.shape, one.dtype) for one in tensors]
    with calls.recorded_scope():
        traced = tf.function(one_step, autograph=False).get_concrete_function(*specs)
    return StepGraph(traced, calls, step_flops(traced.graph, pieces))


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
