"""The memory that a training step needs: an estimate, and what TensorFlow's allocator reports."""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from orbit_runner.inspection.batches import batch_bytes, batch_sizes
from orbit_runner.inspection.memory.allocator import (
    bytes_in_use,
    concurrent_ops,
    peak_bytes,
    reset_peak,
)
from orbit_runner.inspection.memory.block_allocator import aligned_size
from orbit_runner.inspection.memory.liveness import graph_peak
from orbit_runner.inspection.step_graph import StepGraph
from orbit_runner.state.train_state import TrainState

_WARM_UP, _MEASURED, _SECONDS = 2, (5, 25), 5.0


@dataclasses.dataclass(frozen=True)
class MemoryEstimate:
    """Bytes of tensors on the device of a replica. The parts add up to the peak.

    Attributes:
        weights: The weights.
        optimizer: The variables of the optimizer.
        average: The average of the weights, if there is one.
        inputs: The batch; None if unknown, as are the next three.
        activations: The part of the peak in outputs of the forward pass that are still needed.
        temporary: The part of the peak in gradients and temporary tensors.
        unused: The part of the peak in unused ends of the allocator's blocks.
        constants: The constants of the graph.
        gradients: All gradients of the weights together. Not all of them need exist at the peak.
    """

    weights: int
    optimizer: int
    average: int
    inputs: int | None
    activations: int | None
    temporary: int | None
    unused: int | None
    constants: int
    gradients: int

    @property
    def peak(self) -> int | None:
        """The sum of the parts; None if one is unknown."""
        parts = (self.activations, self.temporary, self.unused)
        if self.inputs is None or None in parts:
            return None
        return self.persistent + sum(part or 0 for part in parts)

    @property
    def persistent(self) -> int:
        """The bytes of the variables, the batch and the constants."""
        variables = self.weights + self.optimizer + self.average
        return variables + (self.inputs or 0) + self.constants


def estimate_memory(state: TrainState, batch: Any, step: StepGraph | None) -> MemoryEstimate:
    """Returns the estimate for a step on a batch; both are None if there are no data."""
    slots = state.optimizer_variables()
    averages = state.ema.averages if state.ema is not None else ()
    peak = None
    if step is not None:
        persistent = variable_sizes([*state.model.weights, *slots, *averages])
        persistent += batch_sizes(batch)
        peak = graph_peak(step.function.graph, persistent, concurrent_ops())
    return MemoryEstimate(
        weights=variable_bytes(state.model.weights),
        optimizer=variable_bytes(slots),
        average=variable_bytes(averages),
        inputs=None if batch is None else batch_bytes(batch),
        activations=None if peak is None else peak.forward,
        temporary=None if peak is None else peak.other,
        unused=None if peak is None else peak.unused,
        constants=0 if peak is None else peak.constants,
        gradients=variable_bytes(state.model.trainable_weights),
    )


def measured_peak(step: StepGraph, batch: Any, device: str, memory: MemoryEstimate) -> int:
    """Runs a step several times, and returns its peak: persistent bytes plus the median increase.

    `memory` has the persistent bytes: variables, batch and constants. The allocator's total would
    contain batches of the input pipeline as well.
    """
    with tf.device(device):  # A step would copy a batch that is elsewhere, and count it again.
        batch = tf.nest.map_structure(tf.identity, batch, expand_composites=True)
    for _ in range(_WARM_UP):
        step.run(batch)
    added: list[int] = []
    fewest, most = _MEASURED
    end = time.perf_counter() + _SECONDS
    while len(added) < fewest or (len(added) < most and time.perf_counter() < end):
        before = bytes_in_use(device)
        reset_peak(device)
        # When it returns, the host has launched all kernels of a GPU, and allocated their memory.
        step.run(batch)
        added.append(peak_bytes(device) - before)
    return memory.persistent + int(statistics.median(added))


def variable_bytes(variables: Iterable[Any]) -> int:
    """Returns the bytes of variables, each counted once."""
    return sum(variable_sizes(variables))


def variable_sizes(variables: Iterable[Any]) -> list[int]:
    """Returns the bytes of each variable, once."""
    distinct = {id(one): one for one in variables}.values()
    return [aligned_size(math.prod(one.shape.as_list()) * one.dtype.size) for one in distinct]
