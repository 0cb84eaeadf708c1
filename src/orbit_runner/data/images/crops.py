"""Central and random crops of images."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from orbit_runner.data.order.keyed_random import AREA_CROP, random_bits

_ASPECTS = (3 / 4, 4 / 3)
_ATTEMPTS = 10


def central_window(size: tf.Tensor, fraction: float) -> tf.Tensor:
    """Returns the square in the center of an image.

    The result is first row, first column, height and width, int32 [4]. `size` is height and width,
    int32 [2]. `fraction` is the side of the square as a share of the image's shorter side.

    This is the evaluation of Krizhevsky et al., ImageNet Classification with Deep Convolutional
    Neural Networks, 2012, with 0.875 = 224/256 as in Model Garden.
    """
    sides = tf.cast(size, tf.float32)
    side = fraction * tf.reduce_min(sides)
    first = tf.cast((sides - side) / 2, tf.int32)
    length = tf.maximum(tf.cast(side, tf.int32), 1)
    return tf.concat([first, length[tf.newaxis], length[tf.newaxis]], axis=0)


def inception_window(
    size: tf.Tensor,
    areas: Sequence[float],
    fraction: float,
    seed: int,
    number: tf.Tensor,
    epoch: tf.Tensor,
) -> tf.Tensor:
    """Returns a window of random area and aspect.

    The result is first row, first column, height and width, int32 [4]. `size` is height and width,
    int32 [2]. `areas` are the smallest and the largest area as shares of the image's area. `number`
    (of the example) and `epoch` are int64 scalars.

    Szegedy et al., Going Deeper with Convolutions, 2015, section 6, use an area of 8 % to 100 % and
    an aspect of 3/4 to 4/3. If ten draws do not fit the image, or the whole image is drawn, returns
    the central window with `fraction`, as in Model Garden.
    """
    bits = random_bits(seed, number, epoch, AREA_CROP)
    first, length, _ = tf.image.stateless_sample_distorted_bounding_box(
        tf.concat([size, [3]], axis=0),
        tf.constant([[[0.0, 0.0, 1.0, 1.0]]]),
        seed=tf.bitcast(bits, tf.int32),
        min_object_covered=areas[0],
        aspect_ratio_range=_ASPECTS,
        area_range=areas,
        max_attempts=_ATTEMPTS,
    )
    drawn = tf.concat([first[:2], length[:2]], axis=0)
    return tf.where(tf.reduce_all(length[:2] == size), central_window(size, fraction), drawn)
