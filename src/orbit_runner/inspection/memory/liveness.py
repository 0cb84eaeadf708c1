"""Estimates the peak memory of the tensors of a graph by simulating its execution.

Ops run in the order of TensorFlow's executor, and their outputs are in blocks of its allocator. A
tensor is freed after the last op that reads it. Ops that only rename a tensor share its buffer, and
elementwise ops reuse the buffer of an input that nothing else reads.
"""

from __future__ import annotations

import collections
import dataclasses
import random
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from orbit_runner.inspection.memory.block_allocator import BlockAllocator
from orbit_runner.inspection.memory.execution_order import execution_order
from orbit_runner.inspection.memory.flat_graph import FlatGraph, Op

# Their output is the buffer of their first input.
_ALIASING_OPS = frozenset({
    "Identity", "IdentityN", "Reshape", "Squeeze", "ExpandDims", "StopGradient",
    "PreventGradient", "EnsureShape", "CheckNumerics", "Bitcast",
})  # fmt: skip
# Their kernels write into an input that nothing else reads.
_IN_PLACE_OPS = frozenset({
    "Abs", "Add", "AddN", "AddV2", "BiasAdd", "Cast", "Ceil", "Cos", "Div", "DivNoNan", "Elu",
    "EluGrad", "Erf", "Exp", "Expm1", "Floor", "Inv", "LeakyRelu", "LeakyReluGrad", "Log",
    "Log1p", "LogSoftmax", "Maximum", "Minimum", "Mul", "MulNoNan", "Neg", "Pow", "RealDiv",
    "Reciprocal", "Relu", "Relu6", "Relu6Grad", "ReluGrad", "Round", "Rsqrt", "RsqrtGrad",
    "Select", "SelectV2", "Sigmoid", "SigmoidGrad", "Sign", "Sin", "Softmax", "Softplus",
    "SoftplusGrad", "Sqrt", "SqrtGrad", "Square", "SquaredDifference", "Sub", "Tanh",
    "TanhGrad", "Xdivy",
})  # fmt: skip
# Their kernels change a variable in place, unless its earlier value is still needed.
_UPDATE_OPS = ("AssignAddVariableOp", "AssignSubVariableOp", "ResourceApply")
# The order of ops differs between steps, and that of earlier allocations between processes.
_PROCESSES, _STEPS = 4, 3


@dataclasses.dataclass(frozen=True)
class Peak:
    """The largest number of bytes that tensors of a graph need at once.

    Attributes:
        forward: The part in outputs of the forward pass.
        other: The part in gradients and temporary tensors.
        unused: The part in unused ends of blocks of the allocator.
        constants: The bytes of the constants, which always exist.
    """

    forward: int
    other: int
    unused: int
    constants: int

    @property
    def total(self) -> int:
        """All bytes."""
        return self.forward + self.other + self.unused + self.constants


def graph_peak(graph: Any, persistent: Sequence[int] = (), threads: int = 2) -> Peak:
    """Returns the peak of a function's graph, without its inputs and the variables that it uses.

    Args:
        graph: The graph.
        persistent: The sizes of variables and inputs, which have blocks of the allocator, too.
        threads: The number of ops that can run at the same time.
    """
    flat = FlatGraph(graph)
    inner = [_largest(graph_peak(one, (), threads) for one in op.inner) for op in flat.ops]
    sizes = [*persistent, *flat.constants]
    variation = random.Random(0)
    steps = []
    for _ in range(_PROCESSES):
        variation.shuffle(sizes)
        allocator = BlockAllocator()
        for size in sizes:
            _allocate_initialized(allocator, size)
        for n in range(_STEPS):
            order = execution_order(flat.ops, threads, variation)
            peak = _Step(flat, inner, allocator).peak(order)
            if n:  # The first step finds no blocks that others have freed.
                steps.append(peak)
    forward, other, unused = (
        round(statistics.mean(getattr(one, part) for one in steps))
        for part in ("forward", "other", "unused")
    )
    constants = sum(flat.constants) + sum(one.constants for one in inner if one is not None)
    return Peak(forward, other, unused, constants)


def _allocate_initialized(allocator: BlockAllocator, size: int) -> None:
    """Allocates a tensor that lasts; its initial value leaves a free block behind."""
    initial = allocator.allocate(size)
    allocator.allocate(size)
    allocator.release(initial)


def _largest(peaks: Iterable[Peak]) -> Peak | None:
    return max(peaks, key=lambda one: one.total, default=None)


@dataclasses.dataclass
class _Buffer:
    """The memory of a tensor.

    Attributes:
        size: Its bytes; 0 if it is that of a variable.
        readers: How often it will still be read.
        address: Its block; None if it is that of a variable.
    """

    size: int
    is_forward: bool
    readers: int = 0
    address: int | None = None


class _Step:
    """Simulates the ops of a graph once, and tracks the buffers."""

    def __init__(
        self, flat: FlatGraph, inner: Sequence[Peak | None], allocator: BlockAllocator
    ) -> None:
        self._flat = flat
        self._inner = inner
        self._allocator = allocator
        self._before = allocator.in_use
        self._buffers: dict[int, _Buffer] = {}  # of values; those that last have none
        self._read_values: dict[int, _Buffer] = {}  # of variables, if they were read
        self._live = [0, 0]  # other, forward
        reads = collections.Counter(v for op in flat.ops for v in {*op.inputs})
        reads.update({*flat.results})
        self._reads: Mapping[int, int] = reads

    def peak(self, order: Iterable[tuple[int, bool]]) -> Peak:
        """Returns the peak of the step, and frees all buffers."""
        best = Peak(0, 0, 0, 0)
        for n, starts in order:
            op = self._flat.ops[n]
            if starts:
                self._start(op)
                best = max(best, self._current_peak(self._inner[n]), key=lambda one: one.total)
            else:
                self._finish(op)
        for value in {*self._flat.results}:
            self._read(value)
        return best

    def _current_peak(self, inner: Peak | None) -> Peak:
        """Returns the bytes in use, with those that a loop or a branch needs."""
        other, forward = self._live
        unused = self._allocator.in_use - self._before - other - forward
        if inner is None:
            return Peak(forward, other, unused, 0)
        return Peak(forward + inner.forward, other + inner.other, unused + inner.unused, 0)

    def _start(self, op: Op) -> None:
        if op.type.startswith(_UPDATE_OPS):
            self._keep_earlier_value(op)
        for value, size in zip(op.outputs, op.sizes, strict=True):
            buffer = self._shared_buffer(op, size)
            if buffer is None:
                if not size:
                    continue
                buffer = _Buffer(size, op.is_forward)
                self._allocate(buffer, size)
            self._buffers[value] = buffer
            buffer.readers += self._reads.get(value, 0)

    def _keep_earlier_value(self, op: Op) -> None:
        """Allocates a copy of each variable that an op changes, if its value will still be read."""
        for variable in op.inputs:
            earlier = self._read_values.pop(variable, None)
            if earlier is not None and earlier.readers > 0 and variable not in self._flat.copied:
                self._allocate(earlier, self._flat.variables[variable])

    def _allocate(self, buffer: _Buffer, size: int) -> None:
        buffer.size, buffer.address = size, self._allocator.allocate(size)
        self._live[buffer.is_forward] += size

    def _shared_buffer(self, op: Op, size: int) -> _Buffer | None:
        """Returns the buffer of an input that the op's output shares."""
        if op.type == "ReadVariableOp":
            if op.inputs[0] in self._flat.copied:
                return None
            return self._read_values.setdefault(op.inputs[0], _Buffer(0, op.is_forward))
        if op.type in _ALIASING_OPS:
            persistent = _Buffer(0, op.is_forward)
            return self._buffers.get(op.inputs[0], persistent) if op.inputs else persistent
        if op.type not in _IN_PLACE_OPS:
            return None
        for value in op.inputs:
            buffer = self._buffers.get(value)
            if buffer is not None and buffer.readers == 1 and buffer.size == size:
                return buffer
        return None

    def _finish(self, op: Op) -> None:
        for value in {*op.inputs}:
            self._read(value)
        for value in op.outputs:
            self._free_unread(value)

    def _read(self, value: int) -> None:
        buffer = self._buffers.get(value)
        if buffer is not None:
            buffer.readers -= 1
            self._free_unread(value)

    def _free_unread(self, value: int) -> None:
        buffer = self._buffers.get(value)
        if buffer is not None and buffer.readers <= 0 and buffer.address is not None:
            self._allocator.release(buffer.address)
            self._live[buffer.is_forward] -= buffer.size
            buffer.size, buffer.address = 0, None
