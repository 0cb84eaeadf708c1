"""Overlapping slices of an image, whose gradients are added without an image for each slice."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from orbit_runner.distribute.spatial.placement import run_on_device_with_gradient

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

    def backward(upstream: Sequence[tf.Tensor], *_: Any) -> list[tf.Tensor]:
        return [_add_gradients(boxes, upstream, height, width)]

    return run_on_device_with_gradient(device, forward, backward, image)


def _slice(image: tf.Tensor, box: Box, origin: tuple[int, int]) -> tf.Tensor:
    (top, bottom), (left, right) = box
    top, bottom = top - origin[0], bottom - origin[0]
    left, right = left - origin[1], right - origin[1]
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
    batch, channels = tf.shape(gradients[0])[0], gradients[0].shape[-1]
    return tf.zeros([batch, bottom - top, right - left, channels], gradients[0].dtype)
