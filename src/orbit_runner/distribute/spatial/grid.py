"""A batch of images, or of features, in parts that lie on devices of their own."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator

import tensorflow as tf

from orbit_runner.distribute.spatial.placement import fan_out, run_on_device

Place = tuple[int, int, int]
"""Which part: along the batch, the height, the width."""


class PartitionError(ValueError):
    """A network or a size that cannot be partitioned as asked."""


def cuts(size: int, parts: int) -> list[tuple[int, int]]:
    """Cuts a length into parts that differ by one at most.

    They are a function of nothing but the two numbers. Tensors of the same size so lie alike,
    whatever layers they come from, and can be added part by part.

    Args:
        size: The length in pixels.
        parts: Their number.

    Returns:
        Start and stop of each.
    """
    return [(size * i // parts, size * (i + 1) // parts) for i in range(parts)]


@dataclasses.dataclass(frozen=True)
class Layout:
    """How many parts there are along each dimension, and where they lie.

    Attributes:
        dims: Parts along the batch, the height and the width.
        devices: The device of each part; the width counts fastest.
    """

    dims: tuple[int, int, int]
    devices: tuple[str, ...]

    @property
    def first(self) -> str:
        """The device where what is not partitioned lies."""
        return self.devices[0]

    def places(self) -> Iterator[Place]:
        """Yields the place of each part, in the order of the devices."""
        yield from itertools.product(*(range(count) for count in self.dims))

    def device(self, place: Place) -> str:
        """Returns the device of a part.

        Args:
            place: The part.
        """
        _, rows, columns = self.dims
        return self.devices[(place[0] * rows + place[1]) * columns + place[2]]


@dataclasses.dataclass(frozen=True)
class Grid:
    """A tensor `[batch, height, width, channels]` in parts.

    Attributes:
        layout: Where the parts lie.
        height: Of the whole, in pixels.
        width: Of the whole, in pixels.
        parts: Each `[its batch, its height, its width, channels]`.
    """

    layout: Layout
    height: int
    width: int
    parts: dict[Place, tf.Tensor]

    @property
    def dtype(self) -> tf.DType:
        """The type of all parts."""
        return self.parts[0, 0, 0].dtype

    @property
    def channels(self) -> int:
        """The number of channels of all parts."""
        return self.parts[0, 0, 0].shape[-1]

    def map_parts(self, function: Callable[[str, tf.Tensor], tf.Tensor]) -> Grid:
        """Makes a part of each part, of the same height and width.

        Args:
            function: From a device and the part that lies there to another one.

        Returns:
            The results.
        """
        return self.replace_parts(
            [function(self.layout.device(place), part) for place, part in self.parts.items()]
        )

    def replace_parts(self, parts: Iterable[tf.Tensor]) -> Grid:
        """Returns a tensor of the same height and width.

        Args:
            parts: Its parts, in the order of the devices.
        """
        named = dict(zip(self.layout.places(), parts, strict=True))
        return dataclasses.replace(self, parts=named)


def batch_slices(tensor: tf.Tensor, count: int) -> list[tf.Tensor]:
    """Cuts a tensor along the batch, whose size need not be known in the graph.

    Args:
        tensor: `[batch, …]`.
        count: The number of parts.

    Returns:
        The parts, whose sizes differ by one at most.
    """
    if count == 1:
        return [tensor]
    size = tf.shape(tensor)[0]
    return [tensor[size * i // count : size * (i + 1) // count] for i in range(count)]


def scatter(tensor: tf.Tensor, layout: Layout) -> Grid:
    """Cuts a tensor into parts and sends them to their devices.

    Args:
        tensor: `[batch, height, width, channels]`, on the first device, height and width known.
        layout: Where the parts are to lie.

    Returns:
        The parts.

    Raises:
        PartitionError: The size is not known, or too small.
    """
    height, width = tensor.shape[1], tensor.shape[2]
    if height is None or width is None or height < layout.dims[1] or width < layout.dims[2]:
        raise PartitionError(
            f"images of shape {tuple(tensor.shape)} cannot be cut into {layout.dims[1]} x "
            f"{layout.dims[2]} parts; height and width have to be known and no smaller"
        )
    rows, columns = cuts(height, layout.dims[1]), cuts(width, layout.dims[2])

    def cut(whole: tf.Tensor) -> list[tf.Tensor]:
        return [
            image[:, top:bottom, left:right]
            for image in batch_slices(whole, layout.dims[0])
            for top, bottom in rows
            for left, right in columns
        ]

    # On the first device, so that the others are sent no more than their part.
    pieces = run_on_device(layout.first, cut, tensor)
    # The part is on its own device from here on, also for a gradient of the input.
    parts = {
        place: run_on_device(layout.device(place), lambda x: [tf.identity(x)], piece)[0]
        for place, piece in zip(layout.places(), pieces, strict=True)
    }
    return Grid(layout, height, width, parts)


def spread(pixel: tf.Tensor, like: Grid) -> Grid:
    """Gives a tensor of a single pixel, such as a scale for each channel, to all parts.

    Args:
        pixel: `[batch, 1, 1, channels]`, on the first device.
        like: The parts.

    Returns:
        The same pixel for each part, of its examples.
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
    """Brings the parts together on the first device.

    Args:
        grid: The parts.

    Returns:
        `[batch, height, width, channels]`.
    """
    batches, rows, columns = grid.layout.dims

    def join(*parts: tf.Tensor) -> list[tf.Tensor]:
        at = dict(zip(grid.layout.places(), parts, strict=True))
        images = [
            tf.concat(
                [tf.concat([at[b, i, j] for j in range(columns)], axis=2) for i in range(rows)],
                axis=1,
            )
            for b in range(batches)
        ]
        return [tf.concat(images, axis=0)]

    return run_on_device(grid.layout.first, join, *grid.parts.values())[0]
