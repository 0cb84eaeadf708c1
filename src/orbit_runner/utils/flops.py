"""Counts the floating-point operations of a traced step in matrix products and convolutions.

A multiplication and an addition count as two operations, as in Chowdhery et al., PaLM, 2022,
appendix B. Elementwise operations are not counted, as in that paper. The graph contains the forward
and the backward pass, so the result is not multiplied by three. Operations that a step repeats to
save memory count each time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from orbit_runner.tf_internals import function_graph

if TYPE_CHECKING:
    import tensorflow as tf

_Shape = Sequence[int | None]


def step_flops(graph: tf.Graph, pieces: int = 1) -> int | None:
    """Returns the operations of a step, or None if a size is known only when the step runs.

    `pieces` is the number of parts of the batch. All but the first are iterations of one loop.
    """
    total = 0
    for op, iterations in _ops_with_counts(graph, max(1, pieces - 1)):
        operations = op_flops(op)
        if operations is None:
            return None
        total += operations * iterations
    return total


def op_flops(op: tf.Operation) -> int | None:
    """Returns the operations of one op, 0 if its kind is not counted, None if a size is unknown."""
    count = _COUNTERS.get(op.type)
    # Gradients of frozen weights are traced as well, but unused ops are never computed.
    return count(op) if count is not None and _is_used(op) else 0


def _ops_with_counts(
    graph: tf.Graph, iterations: int, inside: int = 1
) -> Iterator[tuple[tf.Operation, int]]:
    for op in graph.get_operations():
        yield op, inside
        loops = op.type in ("While", "StatelessWhile")
        for called in _called_functions(graph, op):
            yield from _ops_with_counts(called, iterations, inside * (iterations if loops else 1))


def _is_used(op: tf.Operation) -> bool:
    (output,) = op.outputs
    returned = any(output is tensor for tensor in getattr(op.graph, "outputs", ()))
    return returned or bool(output.consumers())


def _called_functions(graph: tf.Graph, op: tf.Operation) -> Iterator[tf.Graph]:
    for name in ("f", "body", "then_branch"):  # Only one of two branches runs.
        try:
            function = op.get_attr(name)
        except ValueError:
            continue
        called = function_graph(graph, function.name) if hasattr(function, "name") else None
        if called is not None:
            yield called


def _product(shape: _Shape) -> int | None:
    known = [length for length in shape if length is not None]
    return math.prod(known) if len(known) == len(shape) else None


def _shape(tensor: tf.Tensor) -> _Shape:
    return [None] if tensor.shape.rank is None else tensor.shape.as_list()


def _multiply_add_flops(*sizes: int | None) -> int | None:
    return _product([2, *sizes])


def _matmul_flops(op: tf.Operation) -> int | None:
    shape = _shape(op.inputs[0])
    transposed = op.get_attr("adj_x" if op.type.startswith("Batch") else "transpose_a")
    return _multiply_add_flops(_product(_shape(op.outputs[0])), shape[-2 if transposed else -1])


def _einsum_flops(op: tf.Operation) -> int | None:
    equation = op.get_attr("equation").decode()
    lengths: dict[str, int | None] = {}
    for term, tensor in zip(equation.partition("->")[0].split(","), op.inputs, strict=True):
        if "." in term:
            return None
        lengths.update(zip(term.strip(), _shape(tensor), strict=False))
    return _multiply_add_flops(*lengths.values()) if len(op.inputs) == 2 else 0


def _convolution_counter(
    filters: Callable[[tf.Operation], _Shape], out: Callable[[tf.Operation], tf.Tensor]
) -> Callable[[tf.Operation], int | None]:
    """Returns a function that counts the operations of a convolution or of one of its gradients.

    Each output value takes one multiplication and addition per position and input channel of a
    filter.
    """

    def count(op: tf.Operation) -> int | None:
        kernel = filters(op)
        per_place = kernel[:2] if "Depthwise" in op.type else kernel[:-1]
        return _multiply_add_flops(_product(_shape(out(op))), _product(per_place))

    return count


_FORWARD = _convolution_counter(lambda op: _shape(op.inputs[1]), lambda op: op.outputs[0])
_INPUT_GRADIENT = _convolution_counter(lambda op: _shape(op.inputs[1]), lambda op: op.inputs[2])
_FILTER_GRADIENT = _convolution_counter(lambda op: _shape(op.outputs[0]), lambda op: op.inputs[2])

_COUNTERS: dict[str, Callable[[tf.Operation], int | None]] = {
    "MatMul": _matmul_flops,
    "BatchMatMul": _matmul_flops,
    "BatchMatMulV2": _matmul_flops,
    "BatchMatMulV3": _matmul_flops,
    "Einsum": _einsum_flops,
    **{
        f"{kind}{suffix}": count
        for kind in ("Conv2D", "Conv3D", "DepthwiseConv2dNative")
        for suffix, count in (
            ("", _FORWARD),
            ("BackpropInput", _INPUT_GRADIENT),
            ("BackpropInputV2", _INPUT_GRADIENT),
            ("BackpropFilter", _FILTER_GRADIENT),
            ("BackpropFilterV2", _FILTER_GRADIENT),
        )
    },
}
