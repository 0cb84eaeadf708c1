"""Splits a replica's images over its devices."""

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
    """Says of images which device of the replica holds which part; to be called inside a step.

    XLA derives from it how everything that is computed of them is split, halos included.

    Args:
        strategy: The strategy, whose replicas have as many devices as `dims` multiply to.
        inputs: Nested tensors: features, labels, weights.
        dims: Parts along each dimension of images; None: nothing is split.
        path: The setting to blame.

    Returns:
        The same with images, the tensors of as many dimensions as `dims` has numbers, annotated.
        Labels and weights stay whole: XLA copies them to each device.

    Raises:
        SettingError: Images do not divide by their parts, or there are none.
    """
    if dims is None:
        return inputs
    parts, images = list(dims), 0

    def split(tensor: Any) -> Any:
        nonlocal images
        if not tf.is_tensor(tensor) or tensor.shape.rank != len(parts):
            return tensor
        for blamed, message in shape_problems(path, parts, tensor.shape.as_list()):
            raise SettingError(blamed, message)
        images += 1
        return strategy.experimental_split_to_logical_devices(tensor, parts)

    found = tf.nest.map_structure(split, inputs)
    if not images:
        ranks = sorted({str(tensor.shape.rank) for tensor in tf.nest.flatten(inputs)})
        raise SettingError(
            path,
            f"got {parts}, and no input has {len(parts)} dimensions, only {', '.join(ranks)}",
        )
    return found
