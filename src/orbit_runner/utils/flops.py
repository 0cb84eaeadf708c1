"""The floating-point operations of a step, and the share of the peak of devices that they use.

Only matrix products and convolutions are counted. A multiplication and an addition count as two
operations, as in Chowdhery et al., PaLM, 2022, appendix B. The graph contains the forward and the
backward pass, so the result is not multiplied by three. Operations that a step repeats to save
memory count each time.

The peaks of devices are for dense products, without sparsity, in TFLOP/s of one device. They are
from NVIDIA's data sheets of H200, H100, A100, L4, A10, V100 and T4. For float32, the number is that
of TF32 if the device supports it, because TensorFlow uses TF32.
"""

from __future__ import annotations

import math
import re
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

_HALF = ("bfloat16", "float16")
_FULL = ("float32",)
_PEAKS: tuple[tuple[str, dict[tuple[str, ...], float]], ...] = (
    (r"\bMIG\b", {}),  # The name is that of the whole device.
    (r"\bH[12]00\b.*\bNVL\b", {_HALF: 835.5, _FULL: 417.5}),
    (r"\bH200\b", {_HALF: 989.4, _FULL: 494.7}),
    (r"\bH100\b.*\bPCIe\b", {_HALF: 756.5, _FULL: 378.0}),
    (r"\bH100\b", {_HALF: 989.4, _FULL: 494.7}),
    (r"\bA100\b", {_HALF: 312.0, _FULL: 156.0}),
    (r"\bL4\b", {_HALF: 121.0, _FULL: 60.0}),
    (r"\bA10\b", {_HALF: 125.0, _FULL: 62.5}),
    (r"\bV100\b.*\bPCIE\b", {("float16",): 112.0, _FULL: 14.0}),
    (r"\bV100\b", {("float16",): 125.0, _FULL: 15.7}),
    (r"\bT4\b", {("float16",): 65.0, _FULL: 8.1}),
)


def peak_flops(device: str, dtype: str) -> float | None:
    """Returns the peak of a device in FLOP/s, or None if it is not known, as for CPUs.

    `device` is a name such as `NVIDIA H100 80GB HBM3`. `dtype` is that of the products.
    """
    for pattern, peaks in _PEAKS:
        if re.search(pattern, device):
            return next((1e12 * peak for kinds, peak in peaks.items() if dtype in kinds), None)
    return None


def throughput_logs(flops_per_second: float, peak: float | None) -> dict[str, float]:
    """Returns `tflops_per_second`, and the model FLOPs utilization `mfu` if the peak is known.

    It is defined in Chowdhery et al., PaLM, 2022, appendix B. The peak is that of all devices.
    """
    logs = {"tflops_per_second": flops_per_second / 1e12}
    return logs if peak is None else {**logs, "mfu": flops_per_second / peak}


def peak_of(names: Sequence[str], dtype: str) -> float | None:
    """Returns the total peak of devices in FLOP/s, or None if one of them is not known."""
    peaks = [peak_flops(name, dtype) for name in names]
    return None if not peaks or None in peaks else sum(peak for peak in peaks if peak)


def format_si(number: float) -> str:
    """Returns a nonnegative number with the prefix of its size, such as `12.3 G`."""
    for prefix, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= 0.9995 * size:  # What is rounded to 1000 of a prefix is 1 of the next one.
            return f"{number / size:.3g} {prefix}"
    return f"{number:.3g} "
