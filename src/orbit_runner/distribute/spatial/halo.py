"""Layers with a window around each pixel: each part receives the edges of its neighbors.

The input that a part of the output needs follows from arithmetic on two intervals, for any kernel,
stride, dilation and padding, and for parts of any size. If an edge is wider than the neighbor, it
includes pixels of the part behind it.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence

import tensorflow as tf

from orbit_runner.distribute.spatial.grid import Grid, Place, part_bounds
from orbit_runner.distribute.spatial.placement import run_on_device, run_on_device_with_gradient

# Start and stop, in pixels.
Interval = tuple[int, int]

# Rows and columns.
Box = tuple[Interval, Interval]


def slice_boxes(device: str, image: tf.Tensor, boxes: Sequence[Box]) -> list[tf.Tensor]:
    """Returns boxes cut out of an image, [batch, rows, columns, channels] each.

    TensorFlow's gradient of a slice is an image of zeros that contains the slice: for a part with
    three neighbors, four images would be created and added. Here, the edges of the boxes divide the
    image into cells, and only the slices that overlap in a cell are added. `image` is [batch,
    height, width, channels] on `device`, with known height and width. If the only box covers the
    whole image, the image itself is returned.
    """
    height, width = image.shape[1], image.shape[2]
    if list(boxes) == [((0, height), (0, width))]:
        return [image]

    def forward(whole: tf.Tensor) -> list[tf.Tensor]:
        return [_slice(whole, box, (0, 0)) for box in boxes]

    def backward(upstream: Sequence[tf.Tensor], *_: object) -> list[tf.Tensor]:
        return [_add_gradients(boxes, upstream, height, width)]

    return run_on_device_with_gradient(device, forward, backward, image)


def _slice(image: tf.Tensor, box: Box, origin: tuple[int, int]) -> tf.Tensor:
    (top, bottom), (left, right) = box
    top = top - origin[0]
    bottom = bottom - origin[0]
    left = left - origin[1]
    right = right - origin[1]
    if (top, left) == (0, 0) and (bottom, right) == (image.shape[1], image.shape[2]):
        return tf.identity(image)
    return image[:, top:bottom, left:right]


def _add_gradients(
    boxes: Sequence[Box], gradients: Sequence[tf.Tensor], height: int, width: int
) -> tf.Tensor:
    row_edges = _edges([rows for rows, _ in boxes], height)
    column_edges = _edges([columns for _, columns in boxes], width)
    bands = []
    for rows in row_edges:
        cells = [_add_cell(boxes, gradients, (rows, columns)) for columns in column_edges]
        bands.append(tf.concat(cells, axis=2) if len(cells) > 1 else cells[0])
    return tf.concat(bands, axis=1) if len(bands) > 1 else bands[0]


def _edges(intervals: Sequence[Interval], size: int) -> list[Interval]:
    points = sorted({0, size, *(point for interval in intervals for point in interval)})
    return list(itertools.pairwise(points))


def _add_cell(boxes: Sequence[Box], gradients: Sequence[tf.Tensor], cell: Box) -> tf.Tensor:
    (top, bottom), (left, right) = cell
    covering = [
        _slice(gradient, cell, (rows[0], columns[0]))
        for (rows, columns), gradient in zip(boxes, gradients, strict=True)
        if rows[0] <= top and bottom <= rows[1] and columns[0] <= left and right <= columns[1]
    ]
    if covering:
        return tf.add_n(covering) if len(covering) > 1 else covering[0]
    batch = tf.shape(gradients[0])[0]
    channels = gradients[0].shape[-1]
    return tf.zeros([batch, bottom - top, right - left, channels], gradients[0].dtype)


# Numbers of pixels outside of the image that a window covers: above and below, left and right.
Pads = tuple[Interval, Interval]


@dataclasses.dataclass(frozen=True)
class Window:
    """The window of a layer along one dimension."""

    size: int  # Input pixels of an output, including the gaps of a dilation.
    stride: int  # Input pixels from one output to the next.
    before: int  # Pixels of padding before the first pixel; negative for cropping.
    outputs: int  # The number of output pixels.

    def input_interval(self, outputs: Interval) -> Interval:
        """Returns the input pixels that some outputs need; they may extend beyond the image."""
        start, stop = outputs
        return start * self.stride - self.before, (
            (stop - 1) * self.stride - self.before + self.size
        )


def compute_window(length: int, kernel: int, stride: int, dilation: int, padding: str) -> Window:
    """Returns the window of a convolution or a pooling along one dimension.

    `length` is the size of the input in pixels. `padding` is `same` or `valid`, as in TensorFlow.
    """
    size = (kernel - 1) * dilation + 1
    if padding == "valid":
        return Window(size, stride, 0, max(0, (length - size) // stride + 1))
    outputs = -(-length // stride)
    total = max(0, (outputs - 1) * stride + size - length)
    return Window(size, stride, total // 2, outputs)


@dataclasses.dataclass(frozen=True)
class PartInput:
    """The input of a part along one dimension."""

    pieces: tuple[tuple[int, int, int], ...]  # Part, and start and stop in it, of each piece.
    pads: Interval  # The numbers of pixels outside the image, before and after.


def find_input(needed: Interval, parts: list[Interval]) -> PartInput:
    """Returns the pieces of an interval of the input, which may extend beyond the image.

    `parts` contains start and stop of each part of the input.
    """
    size = parts[-1][1]
    start = max(0, needed[0])
    stop = min(size, needed[1])
    if start >= stop:  # Only padding: an empty slice still has the dtype and the channels.
        return PartInput(((0, 0, 0),), (needed[1] - needed[0], 0))
    pieces = tuple(
        (index, max(start, low) - low, min(stop, high) - low)
        for index, (low, high) in enumerate(parts)
        if max(start, low) < min(stop, high)
    )
    return PartInput(pieces, (start - needed[0], needed[1] - stop))


def exchange_halo(
    grid: Grid,
    windows: Sequence[Window],
    function: Callable[..., tf.Tensor],
    *tensors: tf.Tensor,
) -> Grid:
    """Returns the output of a layer, run on each part extended by the edges of its neighbors.

    Only the parts and their edges are kept for the gradient, not the extended parts. `windows` are
    those along the height and the width. `function(part, pads, *tensors)` returns a part of the
    output for an extended part and its `Pads`; it must not pad otherwise. `tensors` are for example
    the kernel.
    """
    rows, columns = windows
    layout = grid.layout
    _, row_parts, column_parts = layout.dims
    down = [
        find_input(rows.input_interval(outputs), part_bounds(grid.height, row_parts))
        for outputs in part_bounds(rows.outputs, row_parts)
    ]
    across = [
        find_input(columns.input_interval(outputs), part_bounds(grid.width, column_parts))
        for outputs in part_bounds(columns.outputs, column_parts)
    ]
    pieces = _slice_pieces(grid, down, across)

    def compute_part(place: Place) -> tf.Tensor:
        batch, i, j = place
        keys = [
            ((batch, i, j), (batch, part_i, part_j))
            for part_i, _, _ in down[i].pieces
            for part_j, _, _ in across[j].pieces
        ]
        breadth = len(across[j].pieces)
        pads = (down[i].pads, across[j].pads)

        def run(*inputs: tf.Tensor) -> list[tf.Tensor]:
            part = _join(inputs[: len(keys)], breadth)
            return [function(part, pads, *inputs[len(keys) :])]

        own = [pieces[key] for key in keys]
        return run_on_device(layout.device(place), run, *own, *tensors, recompute=True)[0]

    parts = {place: compute_part(place) for place in layout.places()}
    return Grid(layout, rows.outputs, columns.outputs, parts)


def _slice_pieces(
    grid: Grid, down: list[PartInput], across: list[PartInput]
) -> dict[tuple[Place, Place], tf.Tensor]:
    """Returns what each part receives from each, by (to, from), on the device of the source."""
    given: dict[Place, list[tuple[Place, Box]]] = {place: [] for place in grid.parts}
    for batch, i, j in grid.layout.places():
        for part_i, top, bottom in down[i].pieces:
            for part_j, left, right in across[j].pieces:
                box = (top, bottom), (left, right)
                given[batch, part_i, part_j].append(((batch, i, j), box))
    pieces = {}
    for source, wanted in given.items():
        boxes = [box for _, box in wanted]
        tensors = slice_boxes(grid.layout.device(source), grid.parts[source], boxes)
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
