"""Random erasing: fills a rectangle with noise."""

from __future__ import annotations

import dataclasses
import math

import tensorflow as tf

from orbit_runner.data.images.decode import round_to_uint8
from orbit_runner.data.images.statistics import NATURAL_MEAN, NATURAL_STD
from orbit_runner.data.order.keyed_random import ERASING, random_bits

_TRIALS = 10


@dataclasses.dataclass(frozen=True)
class Erasing:
    """Zhong et al., Random Erasing Data Augmentation, 2020, algorithm 1, with noise as the fill."""

    probability: float = 0.25
    min_area: float = 0.02  # As a share of the image's area.
    max_area: float = 1 / 3
    min_aspect: float = 0.3  # Smallest ratio of height to width. The largest is its inverse.

    def __call__(
        self, image: tf.Tensor, seed: int, number: tf.Tensor, epoch: tf.Tensor
    ) -> tf.Tensor:
        """Returns the image, with a rectangle filled with noise in a random share of the calls.

        `image` and the result are uint8 [height, width, 3], with a static shape. `number` (of the
        example) and `epoch` are int64 scalars. The first of ten random rectangles that is smaller
        than the image is filled; if there is no such rectangle, the image is unchanged.
        """
        height, width = image.shape[:2]
        key = tf.bitcast(random_bits(seed, number, epoch, ERASING), tf.int32)
        drawn = tf.random.stateless_uniform([_TRIALS, 4], key)
        area = height * width * (self.min_area + (self.max_area - self.min_area) * drawn[:, 0])
        aspect = tf.exp(math.log(self.min_aspect) * (1 - 2 * drawn[:, 1]))
        rows, columns = tf.round(tf.sqrt(area * aspect)), tf.round(tf.sqrt(area / aspect))
        fits = (rows < height) & (columns < width)
        first = tf.argmax(fits)
        rows, columns = rows[first], columns[first]
        top, left = (height - rows) * drawn[first, 2], (width - columns) * drawn[first, 3]
        chance = tf.random.stateless_uniform([], key + 1)
        erased = tf.reduce_any(fits) & (chance < self.probability)
        inside = _interval_mask(height, top, rows)[:, tf.newaxis] & _interval_mask(
            width, left, columns
        )
        noise = tf.random.stateless_normal(image.shape, key + 2)
        fill = round_to_uint8(tf.constant(NATURAL_MEAN) + tf.constant(NATURAL_STD) * noise)
        return tf.where(erased & inside[..., tf.newaxis], fill, image)


def _interval_mask(length: int, first: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    places = tf.range(length, dtype=tf.float32)
    first = tf.floor(first)
    return (places >= first) & (places < first + size)
