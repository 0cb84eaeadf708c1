"""Runs one training step of a run and returns its tensors, from the batch to the new weights."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from orbit_runner.state.learning_rates import Gradients, seen_gradients_scope
from orbit_runner.state.train_state import TrainState
from orbit_runner.step.batches import named_tensors
from orbit_runner.step.examine import check_examinable
from orbit_runner.step.layers import LayerCalls
from orbit_runner.step.tensor_comparison import PLACES, StepTensor
from orbit_runner.train.run import Run
from orbit_runner.train.trainer import Trainer
from orbit_runner.utils.autograph import convert
from orbit_runner.utils.variables import tracked_variables, variable_name

if TYPE_CHECKING:
    import tf_keras

    from orbit_runner.utils.types import Tensors


def record_step(run: Run) -> list[StepTensor]:
    """Runs the next step, outside of any loop, and returns its tensors.

    Raises `RunnerError` if its tensors cannot be observed.
    """
    check_examinable(run)
    assert run.trainer is not None
    before = [*weight_values(run.state), *slot_values(run.state)]
    inside = _run_step(run, run.trainer)
    after = [StepTensor("update", tensor.name, tensor.value) for tensor in weight_values(run.state)]
    # A task computes its gradients before it returns the loss.
    return sorted([*before, *inside, *after], key=lambda tensor: PLACES.index(tensor.place))


def weight_values(state: TrainState) -> Iterator[StepTensor]:
    """Yields the variables of the model."""
    variables = tracked_variables(state.model)
    # Those of layers in the order of the layers, then others, such as counters.
    order = {id(variable): index for index, variable in enumerate(state.model.weights)}
    for variable in sorted(variables, key=lambda variable: order.get(id(variable), len(order))):
        yield StepTensor("weights", variable_name(variable), np.asarray(variable.numpy()))


def slot_values(state: TrainState) -> Iterator[StepTensor]:
    """Yields the variables of the optimizer, without its settings."""
    variables = getattr(state.optimizer, "variables", ())
    settings = {id(variable) for variable in state.hyperparameters()}
    for variable in variables() if callable(variables) else variables:
        if isinstance(variable, tf.Variable) and id(variable) not in settings:
            yield StepTensor("slots", variable_name(variable), np.asarray(variable.numpy()))


def _run_step(run: Run, trainer: Trainer) -> list[StepTensor]:
    recorder = _Recorder(run.model)
    step = trainer.build_step()
    loss = run.task.loss
    strategy = run.strategy

    def run_recorded_step(batch: Tensors) -> dict[str, tf.Tensor]:
        for name, tensor in named_tensors(batch):
            recorder.add("batch", name, tensor)
        logs = step(batch)
        recorder.add("loss", "", logs[loss])
        return logs

    def run_replica(inputs: Tensors) -> list[tf.Tensor]:
        recorder.begin()
        trainer.replica_step(inputs)
        return recorder.tensors()

    def run_all_replicas(inputs: Tensors) -> list[tf.Tensor | tf.distribute.DistributedValues]:
        return trainer.run_on_replicas(run_replica, inputs)

    batch = trainer.next_batch()  # Not in the scope, where the pipeline's own calls would count.
    original = trainer.step_fn
    trainer.step_fn = run_recorded_step
    try:
        gradients = seen_gradients_scope(run.state.optimizer, recorder.add_gradients)
        with recorder.recorded_scope(), gradients:
            function = tf.function(convert(run_all_replicas, run.task), autograph=False)
            tensors = function(batch)
    finally:
        trainer.step_fn = original
    return [*_local_values(strategy, recorder.names, tensors)]


def _local_values(
    strategy: tf.distribute.Strategy,
    names: Sequence[tuple[str, str]],
    tensors: Sequence[tf.Tensor | tf.distribute.DistributedValues],
) -> Iterator[StepTensor]:
    counts: dict[tuple[str, str], int] = {}
    for (place, name), tensor in zip(names, tensors, strict=True):
        counts[place, name] = counts.get((place, name), 0) + 1
        if counts[place, name] > 1:  # A layer that is called several times.
            name = f"{name}, call {counts[place, name]}"
        values = strategy.experimental_local_results(tensor)
        for replica, value in enumerate(values):
            label = f"{name}, replica {replica}" if len(values) > 1 else name
            yield StepTensor(place, label, np.asarray(value.numpy()))


class _Recorder(LayerCalls):
    """Collects the tensors of a step while it is traced, in each replica."""

    def __init__(self, model: tf.Module) -> None:
        super().__init__(model)
        self.names: list[tuple[str, str]] = []  # of all tensors, the same in each replica
        # Per thread, because `MirroredStrategy` traces each replica in a separate thread.
        self._found = threading.local()

    def begin(self) -> None:
        """Starts in the graph that is being built, that of a replica."""
        is_eager = tf.executing_eagerly()
        self._found.graph = None if is_eager else tf.compat.v1.get_default_graph()
        self._found.named = []

    def add(self, place: str, name: str, tensor: tf.Tensor | tf.IndexedSlices) -> None:
        """Adds a tensor. Those inside loops and compiled functions cannot be returned."""
        if isinstance(tensor, tf.IndexedSlices):
            tensor = tf.convert_to_tensor(tensor)
        if tf.is_tensor(tensor) and getattr(tensor, "graph", None) is self._found.graph:
            self._found.named.append((place, name, tensor))

    def add_gradients(self, pairs: Gradients) -> None:
        """Adds the gradients that the optimizer gets."""
        for gradient, variable in pairs:
            self.add("gradient", variable_name(variable), gradient)

    def record(
        self, layer: tf_keras.layers.Layer, ops: Sequence[tf.Operation], outputs: Tensors
    ) -> None:
        """Adds the output of a layer."""
        tensors = [output for output in tf.nest.flatten(outputs) if tf.is_tensor(output)]
        for index, tensor in enumerate(tensors):
            self.add("output", f"{layer.name}[{index}]" if index else layer.name, tensor)

    def tensors(self) -> list[tf.Tensor]:
        """Returns the tensors of this replica, and stores their names."""
        self.names = [(place, name) for place, name, _ in self._found.named]
        return [tensor for _, _, tensor in self._found.named]
