"""Formats layers and tensors as table rows for terminals and HTML. Does not import TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence

from orbit_runner.reporting.numbers import number_or_dash
from orbit_runner.step.results import LayerRow, TensorSummary, forward_flops, totals

Rows = list[tuple[str, ...]]
LAYER_HEAD = ("layer", "type", "output", "parameters", "FLOPs")
TENSOR_HEAD = ("tensor", "shape", "type", "min", "max", "mean")


def layer_rows(layers: Sequence[LayerRow]) -> Rows:
    """Returns the table of layers, with the columns of `LAYER_HEAD`."""
    was_traced = _was_traced(layers)
    return [
        (
            *(row.name, row.kind, shape_text(row.shape), f"{row.parameters:,}"),
            flops_text(row.flops if was_traced else None),
        )
        for row in layers
    ]


def total_rows(layers: Sequence[LayerRow], step_flops: float | None) -> Rows:
    """Returns the totals of the layers, and the operations of a training step."""
    trainable, others = totals(layers)
    forward = forward_flops(layers) if _was_traced(layers) else None
    return [
        ("trainable parameters", f"{trainable:,}"),
        ("other parameters", f"{others:,}"),
        ("FLOPs of the forward pass", f"{flops_text(forward)} per example"),
        ("FLOPs of a training step", flops_text(step_flops)),
    ]


def tensor_rows(tensors: Sequence[TensorSummary]) -> Rows:
    """Returns the table of tensors, with the columns of `TENSOR_HEAD`."""
    return [
        (
            *(one.name, shape_text(one.shape), one.dtype),
            *(number_or_dash(value) for value in (one.low, one.high, one.mean)),
        )
        for one in tensors
    ]


def flops_text(count: float | None) -> str:
    """Returns a number of operations in a readable unit, such as `4.72 M`."""
    if count is None:
        return "-"
    value, units = float(count), ["", " k", " M", " G", " T", " P"]
    while value >= 1000 and len(units) > 1:
        value /= 1000
        del units[0]
    return f"{value:.0f}" if not units[0] else f"{value:.2f}{units[0]}"


def shape_text(shape: Sequence[int | None] | None) -> str:
    """Returns a shape, such as `8×8×32`; `-` if it is unknown."""
    if shape is None:
        return "-"
    return "×".join("?" if size is None else str(size) for size in shape) or "scalar"


def _was_traced(layers: Sequence[LayerRow]) -> bool:
    return any(row.shape is not None for row in layers)
