"""The ops of a function's graph, with those of the functions that it calls."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

from orbit_runner.inspection.memory.block_allocator import aligned_size
from orbit_runner.utils.flops import op_flops

# Their output of unknown size is what the kernel keeps for the gradient.
_RESERVING_OPS = ("FusedBatchNormV3", "CudnnRNNV3")
_CALL_OPS = ("PartitionedCall", "StatefulPartitionedCall")
# They make TensorFlow copy their variable whenever it is read or assigned.
_SPARSE_UPDATES = ("ResourceScatter", "ResourceSparseApply")
# A core computes several values of a product in the time in which it reads one byte.
_FLOPS_PER_BYTE = 8


@dataclasses.dataclass
class Op:
    """An op, with the numbers of the values that it reads and makes.

    Attributes:
        before: The numbers of the ops that must run before it.
        cost: Its estimated time, in the time that it takes to read or write a byte.
        inner: The graphs of its loop or of its branches, which it runs.
    """

    type: str
    inputs: list[int]
    outputs: list[int]
    sizes: list[int]
    before: list[int]
    is_forward: bool
    stateful: bool
    cost: int
    inner: list[Any]


class FlatGraph:
    """A graph in which the functions that it calls are inlined.

    Attributes:
        ops: The ops that TensorFlow runs.
        results: The numbers of the values that the graph returns.
        variables: The sizes of the variables that it reads.
        copied: The variables that are copied whenever they are read or assigned.
        constants: The sizes of the constants, which always exist.
    """

    def __init__(self, graph: Any) -> None:
        self.ops: list[Op] = []
        self.variables: dict[int, int] = {}
        self.constants: list[int] = []
        self._values = 0
        self._waiting: dict[int, list[int]] = {}  # the ops that must run before a constant exists
        self._guesses: dict[int, int] = {}  # sizes of values, also of those of unknown shape
        values: dict[Any, int] = {}
        for tensor in graph.inputs:
            self._value(values, tensor)
        ends = self._add(graph, values)
        self.results = [values[t.ref()] for t in graph.outputs if t.ref() in values]
        self._connect()
        self._drop_unused(ends)
        sparse = (op for op in self.ops if op.type.startswith(_SPARSE_UPDATES))
        self.copied = {value for op in sparse for value in op.inputs if value in self.variables}
        self._add_copies()

    def _value(self, values: dict[Any, int], tensor: Any) -> int:
        if tensor.ref() not in values:
            values[tensor.ref()] = self._values
            self._values += 1
        return values[tensor.ref()]

    def _add(self, graph: Any, values: dict[Any, int], *, forward: bool = True) -> list[int]:
        """Adds the ops of a graph; returns the last ones that have side effects."""
        last: dict[Any, list[int]] = {}
        for op in graph.get_operations():
            forward = forward and "gradient_tape" not in op.name
            before = [n for one in op.control_inputs for n in last.get(one.name, ())]
            if op.type in ("Placeholder", "Arg", "_Arg"):
                self._value(values, op.outputs[0])
                continue
            if op.type == "Const":
                self._waiting[self._value(values, op.outputs[0])] = before
                self.constants.append(_bytes(op.outputs[0], 0))
                continue
            if op.type == "ReadVariableOp":
                variable = self._value(values, op.inputs[0])
                self.variables[variable] = _bytes(op.outputs[0], 0)
            called = _called_graphs(graph, op, ("f",)) if op.type in _CALL_OPS else []
            if called:
                last[op.name] = self._inline(called[0], op, values, forward=forward)
                continue
            last[op.name] = [self._append(graph, op, values, before, forward=forward)]
        return [n for one in getattr(graph, "control_outputs", ()) for n in last.get(one.name, ())]

    def _inline(self, inner: Any, op: Any, values: dict[Any, int], *, forward: bool) -> list[int]:
        own = {
            inner_tensor.ref(): self._value(values, outer_tensor)
            for inner_tensor, outer_tensor in zip(inner.inputs, op.inputs, strict=False)
        }
        start = len(self.ops)
        self._add(inner, own, forward=forward)
        for outer_tensor, inner_tensor in zip(op.outputs, inner.outputs, strict=False):
            values[outer_tensor.ref()] = self._value(own, inner_tensor)
        return list(range(start, len(self.ops)))

    def _append(
        self, graph: Any, op: Any, values: dict[Any, int], before: list[int], *, forward: bool
    ) -> int:
        inputs = [self._value(values, one) for one in op.inputs]
        outputs = [self._value(values, one) for one in op.outputs]
        before = [*before, *(n for value in inputs for n in self._waiting.get(value, ()))]
        read = [_bytes(t, self._guesses.get(v, 0)) for t, v in zip(op.inputs, inputs, strict=True)]
        unknown = _reserved_bytes(op) if op.type in _RESERVING_OPS else max(read, default=0)
        made = [_bytes(one, unknown) for one in op.outputs]
        self._guesses.update(zip(outputs, made, strict=True))
        self.ops.append(
            Op(
                type=op.type,
                inputs=inputs,
                outputs=outputs,
                sizes=made,
                before=before,
                is_forward=forward,
                stateful=op.op_def.is_stateful,
                cost=sum(read) + sum(made) + (op_flops(op) or 0) // _FLOPS_PER_BYTE,
                inner=_called_graphs(graph, op, ("body", "then_branch", "else_branch")),
            )
        )
        return len(self.ops) - 1

    def _connect(self) -> None:
        """Adds to each op those that make its inputs."""
        maker = {value: n for n, op in enumerate(self.ops) for value in op.outputs}
        for n, op in enumerate(self.ops):
            op.before = [*{*op.before, *(maker[v] for v in op.inputs if v in maker)} - {n}]

    def _drop_unused(self, ends: Iterable[int]) -> None:
        """Removes ops whose results are never used: TensorFlow does not run them."""
        results = {*self.results}
        stack = [n for n, op in enumerate(self.ops) if op.stateful and not op.outputs]
        stack += [*ends, *(n for n, op in enumerate(self.ops) if results & {*op.outputs})]
        needed = {*stack}
        while stack:
            new = {*self.ops[stack.pop()].before} - needed
            needed |= new
            stack.extend(new)
        number = {old: new for new, old in enumerate(sorted(needed))}
        self.ops = [self.ops[n] for n in number]
        for op in self.ops:
            op.before = [number[n] for n in op.before]

    def _add_copies(self) -> None:
        """Adds an output that nothing reads to each op that assigns a copy."""
        for op in self.ops:
            if op.type == "AssignVariableOp" and op.inputs[0] in self.copied:
                op.outputs.append(self._values)
                op.sizes.append(self.variables[op.inputs[0]])
                self._values += 1


def _called_graphs(graph: Any, op: Any, names: Sequence[str]) -> list[Any]:
    found = []
    for name in names:
        try:
            function = graph._get_function(op.get_attr(name).name)
        except (ValueError, AttributeError):
            continue
        if function is not None and getattr(function, "graph", None) is not None:
            found.append(function.graph)
    return found


def _reserved_bytes(op: Any) -> int:
    """Returns the bytes that a kernel keeps for its gradient.

    oneDNN's batch normalization keeps a bit for each value if a ReLU follows. TensorFlow allocates
    a float for eight of them. What cuDNN keeps is unknown before it runs.
    """
    values = op.outputs[0]
    is_fused = any(one.type == "Relu" for one in values.consumers())
    return aligned_size(_bytes(values, 0) // 8) if is_fused and op.type == "FusedBatchNormV3" else 0


def _bytes(tensor: Any, unknown: int) -> int:
    """Returns the size of a tensor; `unknown` if its shape is known only when it runs."""
    dtype = tensor.dtype.base_dtype
    if dtype.name in ("resource", "variant", "string"):
        return 0
    if not tensor.shape.is_fully_defined():
        return unknown
    return aligned_size(math.prod(tensor.shape.as_list()) * dtype.size)
