"""Estimates how many bytes of tensors a graph needs at once, by running it without computing.

Ops run in the order in which TensorFlow's executor makes them ready. A tensor is freed after the
last op that reads it. Ops that only rename a tensor share its buffer, and elementwise ops reuse the
buffer of an input that nothing else reads.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# Their output is the buffer of their first input.
_RENAMING = frozenset({
    "Identity", "IdentityN", "Reshape", "Squeeze", "ExpandDims", "StopGradient",
    "PreventGradient", "EnsureShape", "CheckNumerics", "ReadVariableOp", "Bitcast",
})  # fmt: skip
# Their kernels write into an input that nothing else reads.
_IN_PLACE = frozenset({
    "Abs", "Add", "AddN", "AddV2", "BiasAdd", "Cast", "Ceil", "Cos", "Div", "DivNoNan", "Elu",
    "EluGrad", "Erf", "Exp", "Expm1", "Floor", "Inv", "LeakyRelu", "LeakyReluGrad", "Log",
    "Log1p", "LogSoftmax", "Maximum", "Minimum", "Mul", "MulNoNan", "Neg", "Pow", "RealDiv",
    "Reciprocal", "Relu", "Relu6", "Relu6Grad", "ReluGrad", "Round", "Rsqrt", "RsqrtGrad",
    "Select", "SelectV2", "Sigmoid", "SigmoidGrad", "Sign", "Sin", "Softmax", "Softplus",
    "SoftplusGrad", "Sqrt", "SqrtGrad", "Square", "SquaredDifference", "Sub", "Tanh",
    "TanhGrad", "Xdivy",
})  # fmt: skip
# Their outputs of unknown size are small, except for some kernels on GPUs.
_RESERVING = ("FusedBatchNormV3", "CudnnRNNV3")
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
# TensorFlow's allocator rounds sizes up to a multiple of this.
_ALLOCATED = 256


@dataclasses.dataclass(frozen=True)
class Peak:
    """The largest number of bytes that tensors of a graph need at once.

    Attributes:
        forward: The part in outputs of the forward pass.
        other: The part in gradients and temporary tensors.
        constants: The bytes of the constants, which always exist.
    """

    forward: int
    other: int
    constants: int

    @property
    def total(self) -> int:
        """All bytes."""
        return self.forward + self.other + self.constants


@dataclasses.dataclass
class _Node:
    """An op, with the numbers of the values that it reads and makes."""

    type: str
    inputs: list[int]
    outputs: list[int]
    sizes: list[int]
    dtypes: list[Any]
    after: list[int]  # nodes that must run before it, besides those that make its inputs
    is_forward: bool
    stateful: bool
    extra: int = 0  # bytes that it needs while it runs


class _Flat:
    """A graph in which the functions that it calls are inlined."""

    def __init__(self, graph: Any) -> None:
        self.nodes: list[_Node] = []
        self.constants = 0
        self._values = 0
        values: dict[Any, int] = {}
        self.lasting = {self._value(values, tensor) for tensor in graph.inputs}
        ends = self._add(graph, values)
        self.results = [values[t.ref()] for t in graph.outputs if t.ref() in values]
        self._drop_unused(ends)

    def _value(self, values: dict[Any, int], tensor: Any) -> int:
        if tensor.ref() not in values:
            values[tensor.ref()] = self._values
            self._values += 1
        return values[tensor.ref()]

    def _add(self, graph: Any, values: dict[Any, int], *, forward: bool = True) -> list[int]:
        """Adds the ops of a graph; returns the last nodes that have side effects."""
        last: dict[Any, list[int]] = {}
        for op in graph.get_operations():
            forward = forward and "gradient_tape" not in op.name
            after = [n for one in op.control_inputs for n in last.get(one.name, ())]
            if op.type in ("Placeholder", "Arg", "_Arg"):
                self._value(values, op.outputs[0])
                continue
            if op.type == "Const":
                value = self._value(values, op.outputs[0])
                self.lasting.add(value)
                self.constants += _bytes(op.outputs[0], 0)
                continue
            called = _called(graph, op, ("f",)) if op.type in _CALLS else []
            if called:
                last[op.name] = self._inline(called[0], op, values, forward=forward)
                continue
            last[op.name] = [self._append(graph, op, values, after, forward=forward)]
        return [n for one in getattr(graph, "control_outputs", ()) for n in last.get(one.name, ())]

    def _inline(self, inner: Any, op: Any, values: dict[Any, int], *, forward: bool) -> list[int]:
        own = {
            there.ref(): self._value(values, here)
            for there, here in zip(inner.inputs, op.inputs, strict=False)
        }
        start = len(self.nodes)
        self._add(inner, own, forward=forward)
        for here, there in zip(op.outputs, inner.outputs, strict=False):
            values[here.ref()] = self._value(own, there)
        return list(range(start, len(self.nodes)))

    def _append(
        self, graph: Any, op: Any, values: dict[Any, int], after: list[int], *, forward: bool
    ) -> int:
        largest = max((_bytes(one, 0) for one in op.inputs), default=0)
        inner = _called(graph, op, ("body", "then_branch", "else_branch"))
        self.nodes.append(
            _Node(
                type=op.type,
                inputs=[self._value(values, one) for one in op.inputs],
                outputs=[self._value(values, one) for one in op.outputs],
                sizes=[_bytes(one, 0 if op.type in _RESERVING else largest) for one in op.outputs],
                dtypes=[one.dtype for one in op.outputs],
                after=after,
                is_forward=forward,
                stateful=op.op_def.is_stateful,
                extra=max((graph_peak(one).total for one in inner), default=0),
            )
        )
        return len(self.nodes) - 1

    def _drop_unused(self, ends: Iterable[int]) -> None:
        """Removes ops whose results are never used: TensorFlow does not run them."""
        maker = {value: n for n, node in enumerate(self.nodes) for value in node.outputs}
        needed = {n for n, node in enumerate(self.nodes) if node.stateful and not node.outputs}
        stack = [*needed, *ends, *(maker[v] for v in self.results if v in maker)]
        needed = set(stack)
        while stack:
            node = self.nodes[stack.pop()]
            for n in (*node.after, *(maker[v] for v in node.inputs if v in maker)):
                if n not in needed:
                    needed.add(n)
                    stack.append(n)
        kept = sorted(needed)
        number = {old: new for new, old in enumerate(kept)}
        nodes = [self.nodes[n] for n in kept]
        for node in nodes:
            node.after = [number[n] for n in node.after if n in number]
        self.nodes = nodes


def graph_peak(graph: Any) -> Peak:
    """Returns the peak of a function's graph, without its inputs and the variables that it uses."""
    flat = _Flat(graph)
    return _Run(flat).peak()


class _Run:
    """Runs the nodes of a graph in order, and keeps account of the buffers."""

    def __init__(self, flat: _Flat) -> None:
        self._flat = flat
        self._buffer: dict[int, int] = {}  # value → buffer; missing: it lasts, and is not counted
        self._size: dict[int, int] = {}
        self._is_forward: dict[int, bool] = {}
        self._readers: collections.Counter[int] = collections.Counter()
        reads = collections.Counter(v for node in flat.nodes for v in {*node.inputs})
        reads.update(set(flat.results))
        self._reads: Mapping[int, int] = reads
        self._live = [0, 0]  # other, forward

    def peak(self) -> Peak:
        best, at_best = -1, (0, 0)
        for node in _in_order(self._flat.nodes):
            self._start(node)
            total = sum(self._live) + node.extra
            if total > best:
                best, at_best = total, (self._live[0] + node.extra, self._live[1])
            self._finish(node)
        return Peak(at_best[1], at_best[0], self._flat.constants)

    def _start(self, node: _Node) -> None:
        for value, size, dtype in zip(node.outputs, node.sizes, node.dtypes, strict=True):
            shared = self._shared(node, size, dtype)
            if shared is None:
                if node.type in _RENAMING:
                    continue  # of a tensor that lasts
                shared = value
                self._size[shared] = size
                self._is_forward[shared] = node.is_forward
                self._live[node.is_forward] += size
            self._buffer[value] = shared
            self._readers[shared] += self._reads.get(value, 0)

    def _shared(self, node: _Node, size: int, dtype: Any) -> int | None:
        """Returns the buffer of an input that the op's output is in."""
        if node.type in _RENAMING:
            return self._buffer.get(node.inputs[0]) if node.inputs else None
        if node.type not in _IN_PLACE:
            return None
        for value in node.inputs:
            buffer = self._buffer.get(value)
            if buffer is not None and self._readers[buffer] == 1 and self._size[buffer] == size:
                return buffer
        return None

    def _finish(self, node: _Node) -> None:
        for value in {*node.inputs}:
            buffer = self._buffer.get(value)
            if buffer is not None:
                self._readers[buffer] -= 1
                self._free(buffer)
        for value in node.outputs:
            if value in self._buffer:
                self._free(self._buffer[value])

    def _free(self, buffer: int) -> None:
        if self._readers[buffer] <= 0 and buffer in self._size:
            self._live[self._is_forward[buffer]] -= self._size.pop(buffer)


def _in_order(nodes: Sequence[_Node]) -> Iterable[_Node]:
    """Yields nodes in the order in which they become ready."""
    maker = {value: n for n, node in enumerate(nodes) for value in node.outputs}
    waits = [0] * len(nodes)
    then: list[list[int]] = [[] for _ in nodes]
    for n, node in enumerate(nodes):
        before = {*node.after, *(maker[v] for v in node.inputs if v in maker)} - {n}
        waits[n] = len(before)
        for one in before:
            then[one].append(n)
    ready = collections.deque(n for n, count in enumerate(waits) if not count)
    while ready:
        n = ready.popleft()
        yield nodes[n]
        for other in then[n]:
            waits[other] -= 1
            if not waits[other]:
                ready.append(other)


def _called(graph: Any, op: Any, names: Sequence[str]) -> list[Any]:
    found = []
    for name in names:
        try:
            function = graph._get_function(op.get_attr(name).name)
        except (ValueError, AttributeError):
            continue
        if function is not None and getattr(function, "graph", None) is not None:
            found.append(function.graph)
    return found


def _bytes(tensor: Any, unknown: int) -> int:
    """Returns the size of a tensor; `unknown` if its shape is known only when it runs."""
    dtype = tensor.dtype.base_dtype
    if dtype.name in ("resource", "variant", "string"):
        return 0
    if not tensor.shape.is_fully_defined():
        return unknown
    return rounded(math.prod(tensor.shape.as_list()) * dtype.size)


def rounded(size: int) -> int:
    """Returns the bytes that TensorFlow's allocator uses for a tensor of a size."""
    return -(-size // _ALLOCATED) * _ALLOCATED
