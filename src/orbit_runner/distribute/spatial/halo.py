"""Layers that look at a window around each pixel: each part is given the edges of its neighbours.

What a part of the output needs of the input follows from arithmetic on two intervals, for any
kernel, stride, dilation and padding, and for parts of any size: an edge may be wider than the
neighbour, and come from the one behind it too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import tensorflow as tf

from orbit_runner.distribute.spatial.grid import Grid, Place, cuts
from orbit_runner.distribute.spatial.placement import run_on_device
from orbit_runner.distribute.spatial.slices import Box, Interval, slices

Pads = tuple[Interval, Interval]
"""Pixels outside of the image that a window sees: above and below, left and right."""


@dataclasses.dataclass(frozen=True)
class Window:
    """What a layer sees along one dimension.

    Attributes:
        size: Pixels that an output is made of, gaps of a dilation included.
        stride: Pixels from one output to the next.
        before: Pixels of padding in front of the first; negative where some are cropped.
        outputs: The number of outputs.
    """

    size: int
    stride: int
    before: int
    outputs: int

    def needs(self, outputs: Interval) -> Interval:
        """Returns the pixels that some outputs are made of; some may lie outside of the image.

        Args:
            outputs: Start and stop.
        """
        start, stop = outputs
        return start * self.stride - self.before, (
            (stop - 1) * self.stride - self.before + self.size
        )


def window(length: int, kernel: int, stride: int, dilation: int, padding: str) -> Window:
    """Makes the window of a convolution or a pooling.

    Args:
        length: Of the input, in pixels.
        kernel: Width of the kernel in its own pixels.
        stride: Pixels from one output to the next.
        dilation: Pixels from one of the kernel to the next.
        padding: `same` or `valid`, as TensorFlow means them.

    Returns:
        The window.
    """
    size = (kernel - 1) * dilation + 1
    if padding == "valid":
        return Window(size, stride, 0, max(0, (length - size) // stride + 1))
    outputs = -(-length // stride)
    total = max(0, (outputs - 1) * stride + size - length)
    return Window(size, stride, total // 2, outputs)


@dataclasses.dataclass(frozen=True)
class Reach:
    """Where a part finds its input along one dimension.

    Attributes:
        pieces: Part, start and stop within it, of each piece, in order.
        pads: Pixels outside of the image, before and after.
    """

    pieces: tuple[tuple[int, int, int], ...]
    pads: Interval


def reach(needed: Interval, parts: list[Interval]) -> Reach:
    """Finds the pieces that an interval of the input consists of.

    Args:
        needed: Start and stop, inside of the image or not.
        parts: Start and stop of each part of the input.

    Returns:
        The pieces.
    """
    size = parts[-1][1]
    start, stop = max(0, needed[0]), min(size, needed[1])
    if start >= stop:  # Padding alone: a slice without pixels still has the type and the channels.
        return Reach(((0, 0, 0),), (needed[1] - needed[0], 0))
    pieces = tuple(
        (index, max(start, low) - low, min(stop, high) - low)
        for index, (low, high) in enumerate(parts)
        if max(start, low) < min(stop, high)
    )
    return Reach(pieces, (start - needed[0], needed[1] - stop))


def exchange_halo(
    grid: Grid,
    windows: Sequence[Window],
    function: Callable[..., tf.Tensor],
    *tensors: tf.Tensor,
) -> Grid:
    """Runs a layer on each part, extended by what it sees of the others.

    What is kept for the gradient are the parts and their edges, not the extended parts.

    Args:
        grid: The input.
        windows: What the layer sees along the height and the width.
        function: From an extended part, its `Pads` and the tensors to the part of the output,
            without any padding but that.
        *tensors: Such as the kernel.

    Returns:
        The output.
    """
    rows, columns = windows
    layout = grid.layout
    _, row_parts, column_parts = layout.dims
    down = [
        reach(rows.needs(outputs), cuts(grid.height, row_parts))
        for outputs in cuts(rows.outputs, row_parts)
    ]
    across = [
        reach(columns.needs(outputs), cuts(grid.width, column_parts))
        for outputs in cuts(columns.outputs, column_parts)
    ]
    pieces = _pieces(grid, down, across)

    def output(place: Place) -> tf.Tensor:
        batch, i, j = place
        keys = [
            ((batch, i, j), (batch, part_i, part_j))
            for part_i, _, _ in down[i].pieces
            for part_j, _, _ in across[j].pieces
        ]
        breadth, pads = len(across[j].pieces), (down[i].pads, across[j].pads)

        def run(*inputs: tf.Tensor) -> list[tf.Tensor]:
            part = _join(inputs[: len(keys)], breadth)
            return [function(part, pads, *inputs[len(keys) :])]

        own = [pieces[key] for key in keys]
        return run_on_device(layout.device(place), run, *own, *tensors, recompute=True)[0]

    parts = {place: output(place) for place in layout.places()}
    return Grid(layout, rows.outputs, columns.outputs, parts)


def _pieces(
    grid: Grid, down: list[Reach], across: list[Reach]
) -> dict[tuple[Place, Place], tf.Tensor]:
    """Cuts what each part gives to each: (to, from) to a tensor on the device it comes from."""
    given: dict[Place, list[tuple[Place, Box]]] = {place: [] for place in grid.parts}
    for batch, i, j in grid.layout.places():
        for part_i, top, bottom in down[i].pieces:
            for part_j, left, right in across[j].pieces:
                box = (top, bottom), (left, right)
                given[batch, part_i, part_j].append(((batch, i, j), box))
    pieces = {}
    for source, wanted in given.items():
        boxes = [box for _, box in wanted]
        tensors = slices(grid.layout.device(source), grid.parts[source], boxes)
        for (target, _), tensor in zip(wanted, tensors, strict=True):
            pieces[target, source] = tensor
    return pieces


def _join(pieces: tuple[tf.Tensor, ...], breadth: int) -> tf.Tensor:
    rows = [
        _concat(pieces[start : start + breadth], axis=2) for start in range(0, len(pieces), breadth)
    ]
    return _concat(tuple(rows), axis=1)


def _concat(tensors: tuple[tf.Tensor, ...], axis: int) -> tf.Tensor:
    return tensors[0] if len(tensors) == 1 else tf.concat(tensors, axis=axis)
