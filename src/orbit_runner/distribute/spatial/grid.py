"""A batch of images or features, split into parts on separate devices."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator

import tensorflow as tf

from orbit_runner.distribute.spatial.placement import fan_out, run_on_device

# The indices of a part along the batch, the height and the width.
Place = tuple[int, int, int]


class PartitionError(ValueError):
    """Raised if a network or a size cannot be partitioned as requested."""


def part_bounds(size: int, parts: int) -> list[tuple[int, int]]:
    """Returns start and stop of each part of a length; the sizes differ by one at most.

    The result depends only on the two numbers. So tensors of the same size are split in the same
    way, whatever layers they come from, and can be added part by part.
    """
    return [(size * i // parts, size * (i + 1) // parts) for i in range(parts)]


@dataclasses.dataclass(frozen=True)
class Layout:
    """The number of parts along each dimension, and their devices."""

    dims: tuple[int, int, int]  # Along the batch, the height and the width.
    devices: tuple[str, ...]  # Of each part; the width changes fastest.

    @property
    def first(self) -> str:
        """The device of all tensors that are not partitioned."""
        return self.devices[0]

    def places(self) -> Iterator[Place]:
        """Yields the place of each part, in the order of the devices."""
        yield from itertools.product(*(range(count) for count in self.dims))

    def device(self, place: Place) -> str:
        """Returns the device of a part."""
        _, rows, columns = self.dims
        return self.devices[(place[0] * rows + place[1]) * columns + place[2]]


@dataclasses.dataclass(frozen=True)
class Grid:
    """A tensor, [batch, height, width, channels], in parts."""

    layout: Layout
    height: int  # Of the whole tensor, in pixels.
    width: int
    parts: dict[Place, tf.Tensor]  # Each [batch, height, width, channels] of the part.

    @property
    def dtype(self) -> tf.DType:
        """The dtype of all parts."""
        return self.parts[0, 0, 0].dtype

    @property
    def channels(self) -> int:
        """The number of channels of all parts."""
        return self.parts[0, 0, 0].shape[-1]

    def map_parts(self, function: Callable[[str, tf.Tensor], tf.Tensor]) -> Grid:
        """Returns the results of `function(device, part)`, which must keep height and width."""
        return self.replace_parts(
            [function(self.layout.device(place), part) for place, part in self.parts.items()]
        )

    def replace_parts(self, parts: Iterable[tf.Tensor]) -> Grid:
        """Returns a grid of the same height and width with other parts, in the devices' order."""
        named = dict(zip(self.layout.places(), parts, strict=True))
        return dataclasses.replace(self, parts=named)


def batch_slices(tensor: tf.Tensor, count: int) -> list[tf.Tensor]:
    """Returns `count` slices of a tensor along the batch, whose sizes differ by one at most.

    The batch size need not be known in the graph.
    """
    if count == 1:
        return [tensor]
    size = tf.shape(tensor)[0]
    return [tensor[size * i // count : size * (i + 1) // count] for i in range(count)]


def scatter(tensor: tf.Tensor, layout: Layout) -> Grid:
    """Returns a tensor split into parts, on their devices.

    `tensor` is [batch, height, width, channels], on the first device. Raises `PartitionError` if
    its height or width is not known or too small.
    """
    height, width = tensor.shape[1], tensor.shape[2]
    if height is None or width is None or height < layout.dims[1] or width < layout.dims[2]:
        raise PartitionError(
            f"images of shape {tuple(tensor.shape)} cannot be split into {layout.dims[1]} x "
            f"{layout.dims[2]} parts; height and width must be known and at least that large"
        )
    rows, columns = part_bounds(height, layout.dims[1]), part_bounds(width, layout.dims[2])

    def cut_parts(whole: tf.Tensor) -> list[tf.Tensor]:
        return [
            image[:, top:bottom, left:right]
            for image in batch_slices(whole, layout.dims[0])
            for top, bottom in rows
            for left, right in columns
        ]

    # Split on the first device, so that only its part is copied to each of the others.
    pieces = run_on_device(layout.first, cut_parts, tensor)
    # From here on, each part is on its own device, also in the gradient of the input.
    parts = {
        place: run_on_device(layout.device(place), lambda x: [tf.identity(x)], piece)[0]
        for place, piece in zip(layout.places(), pieces, strict=True)
    }
    return Grid(layout, height, width, parts)


def spread_pixel(pixel: tf.Tensor, like: Grid) -> Grid:
    """Returns a tensor of a single pixel, such as a scale for each channel, for all parts.

    `pixel` is [batch, 1, 1, channels], on the first device. Each part of the result is [batch of
    the part, 1, 1, channels].
    """
    layout = like.layout
    each = layout.dims[1] * layout.dims[2]
    tensors = [
        copy
        for images in batch_slices(pixel, layout.dims[0])
        for copy in fan_out(layout.first, images, each)
    ]
    return like.replace_parts(tensors)


def gather(grid: Grid) -> tf.Tensor:
    """Returns the parts joined on the first device, [batch, height, width, channels]."""
    batches, rows, columns = grid.layout.dims

    def join_parts(*parts: tf.Tensor) -> list[tf.Tensor]:
        at = dict(zip(grid.layout.places(), parts, strict=True))
        images = [
            tf.concat(
                [tf.concat([at[b, i, j] for j in range(columns)], axis=2) for i in range(rows)],
                axis=1,
            )
            for b in range(batches)
        ]
        return [tf.concat(images, axis=0)]

    return run_on_device(grid.layout.first, join_parts, *grid.parts.values())[0]
