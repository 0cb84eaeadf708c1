"""Decodes the images of a batch in parallel, and reports which of them failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

# From (raw image, example number, epoch) to uint8 [height, width, channels].
MakeImage = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]
# Keeps all cores busy if batches are small.
_IMAGES_AT_ONCE = 32


def decode_batches(
    batches: tf.data.Dataset, make: MakeImage, shape: tuple[int, int, int], batch_size: int
) -> tf.data.Dataset:
    """Returns the batches with decoded images, in the same order.

    The input has the columns `raw`, `id`, `epoch` and others, [b]. In the result, `image` (uint8
    [b, *shape], zeros if decoding failed) and `good` (bool [b]) replace `raw`.

    The images of a batch form a dataset that ignores errors, with an extra last row so that it is
    never empty. Images that are missing in it have failed. This takes one dataset per batch instead
    of one per image, and blocks no thread.
    """
    end = tf.data.Dataset.from_tensors((batch_size, tf.zeros(shape, tf.uint8)))

    def decode_images(columns: dict[str, Any]) -> tf.data.Dataset:
        keys = tf.range(batch_size), columns["raw"], columns["id"], columns["epoch"]
        rows = tf.data.Dataset.from_tensor_slices(keys).map(
            lambda place, *key: (place, tf.ensure_shape(make(*key), shape)),
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
        decoded = rows.ignore_errors().concatenate(end).batch(batch_size + 1)
        rest = {name: column for name, column in columns.items() if name != "raw"}
        return tf.data.Dataset.zip((decoded, tf.data.Dataset.from_tensors(rest)))

    def join_images(decoded: tuple[tf.Tensor, tf.Tensor], rest: dict[str, Any]) -> dict[str, Any]:
        places, rows = decoded
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
        decode_images, cycle_length=cycle, num_parallel_calls=cycle, deterministic=True
    )
    return pieces.map(join_images, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
