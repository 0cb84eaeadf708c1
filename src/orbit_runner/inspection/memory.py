"""The memory that a training step needs: an estimate, and what TensorFlow's allocator reports."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable
from typing import Any

from orbit_runner.inspection.allocator import bytes_in_use, peak_bytes, reset_peak
from orbit_runner.inspection.batches import batch_bytes
from orbit_runner.inspection.liveness import graph_peak, rounded
from orbit_runner.inspection.step_graph import StepGraph
from orbit_runner.state.train_state import TrainState

_WARM_UP, _MEASURED = 2, 5


@dataclasses.dataclass(frozen=True)
class MemoryEstimate:
    """Bytes of tensors on the device of a replica. The parts add up to the peak.

    Attributes:
        weights: The weights.
        optimizer: The variables of the optimizer.
        average: The average of the weights, if there is one.
        inputs: The batch; None if unknown, as are the next two.
        activations: The part of the peak in outputs of the forward pass that are still needed.
        temporary: The part of the peak in gradients and temporary tensors.
        gradients: All gradients of the weights together. Not all of them need exist at the peak.
    """

    weights: int
    optimizer: int
    average: int
    inputs: int | None
    activations: int | None
    temporary: int | None
    gradients: int

    @property
    def peak(self) -> int | None:
        """The sum of the parts; None if one is unknown."""
        parts = (self.inputs, self.activations, self.temporary)
        if None in parts:
            return None
        return self.lasting + (self.activations or 0) + (self.temporary or 0)

    @property
    def lasting(self) -> int:
        """The bytes of the variables and the batch."""
        return self.weights + self.optimizer + self.average + (self.inputs or 0)


def estimate_memory(state: TrainState, batch: Any, step: StepGraph | None) -> MemoryEstimate:
    """Returns the estimate for a step on a batch; both are None if there are no data."""
    peak = None if step is None else graph_peak(step.function.graph)
    inner = getattr(state.optimizer, "inner_optimizer", state.optimizer)
    slots = inner.variables
    return MemoryEstimate(
        weights=variable_bytes(state.model.weights),
        optimizer=variable_bytes(slots() if callable(slots) else slots),
        average=variable_bytes(state.ema.averages if state.ema is not None else ()),
        inputs=None if batch is None else batch_bytes(batch),
        activations=None if peak is None else peak.forward,
        temporary=None if peak is None else peak.other + peak.constants,
        gradients=variable_bytes(state.model.trainable_weights),
    )


def measured_peak(step: StepGraph, batch: Any, device: str, memory: MemoryEstimate) -> int:
    """Runs a step several times, and returns its peak: the median of what it adds to what lasts.

    What lasts are the variables and the batch; `memory` has their sizes. The allocator's total
    would contain batches of the input pipeline as well.
    """
    for _ in range(_WARM_UP):
        step.run(batch)
    added = []
    for _ in range(_MEASURED):
        before = bytes_in_use(device)
        reset_peak(device)
        step.run(batch)
        bytes_in_use(device)  # Waits for the step on a GPU.
        added.append(peak_bytes(device) - before)
    return memory.lasting + int(statistics.median(added))


def variable_bytes(variables: Iterable[Any]) -> int:
    """Returns the bytes of variables, each counted once."""
    distinct = {id(one): one for one in variables}.values()
    return sum(rounded(math.prod(one.shape.as_list()) * one.dtype.size) for one in distinct)
