"""Traces and measures a training step: its operations, gradients, memory and speed.

From these follow the time of the whole run, and the figures of a cluster.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from typing import TYPE_CHECKING

import tensorflow as tf

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.errors import DataError
from orbit_runner.inspection.scale import Scale, ScaleRequest
from orbit_runner.state.learning_rates import Gradients, seen_gradients_scope
from orbit_runner.state.train_state import TrainState
from orbit_runner.step.batches import batch_bytes
from orbit_runner.step.layers import LayerCalls
from orbit_runner.storage.staging import localize
from orbit_runner.tasks.adapter import TaskAdapter
from orbit_runner.train.schedule import Plan
from orbit_runner.utils.autograph import convert
from orbit_runner.utils.flops import step_flops
from orbit_runner.utils.variables import tracked_variables, variable_bytes

if TYPE_CHECKING:
    import tf_keras

    from orbit_runner.train.evaluator import Evaluator
    from orbit_runner.train.trainer import Trainer
    from orbit_runner.utils.types import Tensors


_WARM_UP = 2
_SECONDS = 3.0
_MOST_STEPS = 500
_TIMED_BATCHES = 2


@dataclasses.dataclass(frozen=True)
class StepSizes:
    """Bytes of what a training step of a replica reads and changes, without activations.

    Attributes:
        weights: The weights.
        optimizer: The variables of the optimizer.
        average: The average of the weights, if there is one.
        gradients: All gradients together. Not all of them need exist at the same time.
        inputs: The batch; None if there is none.
    """

    weights: int
    optimizer: int
    average: int
    gradients: int
    inputs: int | None


@dataclasses.dataclass(frozen=True)
class Measurement:
    """The measured times of a few steps.

    Attributes:
        build_seconds: The time to build the task, the model and the optimizer.
        trace_seconds: The time of the first step, with tracing and the start of the input pipeline.
        steps: The number of steps that were timed.
        steps_per_second: Their speed.
        evaluation_seconds: The estimated time of an evaluation; None if it is unknown.
        run_seconds: The estimated time of the run, with evaluations but without the time to save
            checkpoints; None without a schedule.
    """

    build_seconds: float
    trace_seconds: float
    steps: int
    steps_per_second: float
    evaluation_seconds: float | None
    run_seconds: float | None


def step_sizes(state: TrainState, batch: Tensors | None, step: StepGraph | None) -> StepSizes:
    """Returns the sizes for a step on a batch; both are None if there are no data."""
    dense = variable_bytes(state.model.trainable_weights)
    return StepSizes(
        weights=variable_bytes(state.model.weights),
        optimizer=variable_bytes(state.optimizer_variables()),
        average=variable_bytes(state.ema.averages if state.ema is not None else ()),
        gradients=dense if step is None else step.gradient_bytes,
        inputs=None if batch is None else batch_bytes(batch),
    )


def training_speed(trainer: Trainer) -> tuple[float, int, float]:
    """Returns the seconds of the first step, and steps and seconds of those after it."""
    first = _train(trainer, 1)
    warm = _train(trainer, _WARM_UP) / _WARM_UP
    # Twice: the first loop of a new length may wait for the input pipeline.
    steps = max(1, min(_MOST_STEPS, int(_SECONDS / max(warm, 1e-6))))
    return first, steps, _train(trainer, steps)


def evaluation_seconds(evaluator: Evaluator, batches: int) -> float | None:
    """Returns the estimated seconds of an evaluation of a number of batches; None if unknown."""
    if batches < 1:
        return None
    some = min(_TIMED_BATCHES, batches)
    evaluator.evaluate(tf.constant(some))  # traces
    start = time.perf_counter()
    evaluator.evaluate(tf.constant(some))
    return (time.perf_counter() - start) / some * batches


def _train(trainer: Trainer, steps: int) -> float:
    start = time.perf_counter()
    trainer.train(tf.constant(steps))
    return time.perf_counter() - start


def scale_of(
    request: ScaleRequest,
    config: ExperimentConfig,
    adapter: TaskAdapter,
    state: TrainState,
    plan: Plan | str,
    gradient_bytes: int,
) -> Scale:
    """Returns the figures of a cluster; `plan` may be why it is unknown."""
    known = None if isinstance(plan, str) else plan
    train_data = getattr(config.for_task.task, "train_data", None)
    examples = adapter.examples_per_step(train_data) or None if known else None
    steps = known.steps_per_epoch or None if known else None
    data = localize(config).data
    files, reading = None, ""
    with contextlib.suppress(DataError):  # Reported before a run starts.
        files, reading = data.files(), data.file_reading
    size = None if files is None else sum(file.bytes for file in files.get("train_data", ()))
    read = 0.0 if reading == "memory" else None
    if reading in ("own", "all") and size is not None and steps:
        read = size / steps / (request.workers if reading == "own" else 1)
    variables = tracked_variables(state.checkpoint())
    averages = state.ema.averages if state.ema is not None else ()
    return Scale(
        request=request,
        replicas=request.replicas,
        examples_per_step=examples,
        examples_per_worker=examples and examples / request.workers,
        examples_per_replica=examples and examples / request.replicas,
        steps_per_epoch=steps,
        gradient_bytes=gradient_bytes,
        ring_seconds=request.ring_seconds(gradient_bytes),
        file_bytes=size,
        file_reading=reading,
        file_bytes_per_step=read,
        checkpoint_bytes=variable_bytes([*variables, *state.optimizer_variables(), *averages]),
        checkpoint_interval=known.checkpoint_interval if known else 0,
    )


@dataclasses.dataclass(frozen=True)
class StepGraph:
    """A traced training step.

    Attributes:
        calls: The calls of the model's layers in the step.
        flops: Floating-point operations of the step; None if unknown.
        gradient_bytes: The size of the gradients that the optimizer gets.
    """

    calls: LayerCalls
    flops: int | None
    gradient_bytes: int = 0


def trace_step(
    trainer: Trainer,
    task: object,
    model: tf.Module,
    batch: Tensors,
    pieces: int = 1,
    shards: int = 1,
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

    def one_step(*tensors: tf.Tensor) -> None:
        packed = tf.nest.pack_sequence_as(batch, tensors, expand_composites=True)
        step(iter([packed]))

    tensors = tf.nest.flatten(batch, expand_composites=True)
    specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors]
    sizes: dict[int, int] = {}

    def see(gradients: Gradients) -> None:
        # If the strategy had several replicas, the optimizer would reduce them first.
        sizes.update((id(var), _gradient_bytes(gradient, var)) for gradient, var in gradients)

    with calls.recorded_scope(), seen_gradients_scope(trainer.state.optimizer, see):
        traced = tf.function(one_step, autograph=False).get_concrete_function(*specs)
    flops = step_flops(traced.graph, pieces)
    if shards > 1 and flops is not None:
        # The loops over shards cannot be told from those over the pieces of a batch.
        flops = flops * shards if pieces <= 2 else None
    return StepGraph(calls, flops, sum(sizes.values()))


def _gradient_bytes(gradient: tf.Tensor | tf.IndexedSlices, variable: tf.Variable) -> int:
    """Returns the size of what a replica sends of a gradient: a tensor, or rows if it is sparse."""
    if isinstance(gradient, tf.IndexedSlices):
        parts = (gradient.values, gradient.indices)
        if all(part.shape.is_fully_defined() for part in parts):
            return sum(part.shape.num_elements() * part.dtype.size for part in parts)
    size: int = variable.shape.num_elements() * gradient.dtype.size
    return size


def trace_model(
    model: tf_keras.Model,
    calls: LayerCalls,
    features: Tensors | None = None,
    *,
    training: bool = True,
) -> None:
    """Records the layers in a call of a model: on one example if it declares its inputs.

    If it does not, the call is on `features`, nested tensors; without them, nothing is recorded.
    """
    declared = getattr(model, "inputs", None)
    if declared:
        specs = [tf.TensorSpec([1, *tensor.shape[1:]], tensor.dtype) for tensor in declared]
        features = specs[0] if len(specs) == 1 else specs
    elif features is not None:
        features = tf.nest.map_structure(
            lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype), features
        )
    else:
        return

    def call(inputs: Tensors) -> Tensors:
        return model(inputs, training=training)

    with calls.recorded_scope():
        tf.function(call, autograph=False).get_concrete_function(features)
