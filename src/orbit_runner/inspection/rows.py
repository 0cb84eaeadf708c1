"""Rows of the tables of layers and tensors in an inspection. Does not import TensorFlow."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class LayerRow:
    """A row of the table of layers: a layer, or several that are shown together.

    Attributes:
        name: The name, with those of the layers that contain it.
        kind: The class, or the classes of the layers that are shown together.
        shape: The shape of the output without the batch; None if the layer was not called.
        parameters: The number of parameters, without those of earlier rows that it shares.
        trainable: The number of those that are trained.
        flops: Floating-point operations of the forward pass per example; None if unknown.
    """

    name: str
    kind: str
    shape: tuple[int | None, ...] | None
    parameters: int
    trainable: int
    flops: float | None


@dataclasses.dataclass(frozen=True)
class TensorSummary:
    """A tensor of a batch.

    Attributes:
        name: Where it is in the batch, such as `features.inputs`.
        shape: Its shape.
        dtype: The name of its data type.
        low: The smallest value; None if it has no numbers.
        high: The largest value.
        mean: The mean.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    low: float | None = None
    high: float | None = None
    mean: float | None = None


def totals(rows: Sequence[LayerRow]) -> tuple[int, int]:
    """Returns the numbers of trainable parameters and of others."""
    trained = sum(row.trainable for row in rows)
    return trained, sum(row.parameters for row in rows) - trained


def forward_flops(rows: Sequence[LayerRow]) -> float | None:
    """Returns the operations of the forward pass per example, or None if a layer's are unknown."""
    counts = [row.flops for row in rows]
    return None if None in counts else sum(count or 0 for count in counts)
