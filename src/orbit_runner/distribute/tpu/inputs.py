"""Splits the images of a replica over its devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from orbit_runner.config.schema.partitioning import shape_problems
from orbit_runner.errors import SettingError


def split_inputs(
    strategy: tf.distribute.TPUStrategy,
    inputs: Any,
    dims: Sequence[int] | None,
    path: str = "runtime.train_input_partition_dims",
) -> Any:
    """Returns inputs with images split over the devices of the replica.

    Must be called inside a step. XLA then derives how all computations on the images are split,
    including halos. `dims` is the number of parts along each dimension of the images, one part per
    device; None splits nothing. Images are the tensors with as many dimensions as `dims` has
    entries; XLA copies all others to each device. Raises `SettingError` for the setting `path` if
    the size of an image is not divisible by the parts, or if no input is an image.
    """
    if dims is None:
        return inputs
    parts, images = list(dims), 0

    def split_image(tensor: Any) -> Any:
        nonlocal images
        if not tf.is_tensor(tensor) or tensor.shape.rank != len(parts):
            return tensor
        for setting, message in shape_problems(path, parts, tensor.shape.as_list()):
            raise SettingError(setting, message)
        images += 1
        return strategy.experimental_split_to_logical_devices(tensor, parts)

    found = tf.nest.map_structure(split_image, inputs)
    if not images:
        ranks = sorted({str(tensor.shape.rank) for tensor in tf.nest.flatten(inputs)})
        raise SettingError(
            path,
            f"got {parts}, but no input has {len(parts)} dimensions, only {', '.join(ranks)}",
        )
    return found
