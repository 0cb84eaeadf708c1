"""Decodes the images of a batch side by side, and tells which of them failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

# From a raw image, the number of its example and its epoch to uint8 [height, width, channels].
MakeImage = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]
# So that there is work for all cores where batches are small.
_IMAGES_AT_ONCE = 32


def decode_batches(
    batches: tf.data.Dataset, make: MakeImage, shape: tuple[int, int, int], batch_size: int
) -> tf.data.Dataset:
    """Makes the images of each batch.

    A row of images that do not fail, and a row at the end that stands for none: what is missing is
    what failed. That costs a data set a batch, not one an image, and holds up no thread.

    Args:
        batches: Columns `raw`, `id`, `epoch` and others, [b].
        make: Makes an image.
        shape: Of the images.
        batch_size: b.

    Returns:
        The batches in their order, without `raw`; with `image` (uint8 [b, *shape], zeros where it
        failed) and `good` (bool [b]).
    """
    end = tf.data.Dataset.from_tensors((batch_size, tf.zeros(shape, tf.uint8)))

    def images(columns: dict[str, Any]) -> tf.data.Dataset:
        keys = tf.range(batch_size), columns["raw"], columns["id"], columns["epoch"]
        rows = tf.data.Dataset.from_tensor_slices(keys).map(
            lambda place, *key: (place, tf.ensure_shape(make(*key), shape)),
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
        made = rows.ignore_errors().concatenate(end).batch(batch_size + 1)
        rest = {name: column for name, column in columns.items() if name != "raw"}
        return tf.data.Dataset.zip((made, tf.data.Dataset.from_tensors(rest)))

    def put_together(made: tuple[tf.Tensor, tf.Tensor], rest: dict[str, Any]) -> dict[str, Any]:
        places, rows = made
        index = places[:-1, tf.newaxis]
        good = tf.scatter_nd(index, tf.ones_like(places[:-1]), [batch_size]) > 0
        image = tf.cond(
            tf.size(places) == batch_size + 1,
            lambda: rows[:-1],
            lambda: tf.scatter_nd(index, rows[:-1], [batch_size, *shape]),
        )
        return rest | {"image": tf.ensure_shape(image, [batch_size, *shape]), "good": good}

    cycle = 1 + -(-_IMAGES_AT_ONCE // batch_size)
    pieces = batches.interleave(
        images, cycle_length=cycle, num_parallel_calls=cycle, deterministic=True
    )
    return pieces.map(put_together, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
