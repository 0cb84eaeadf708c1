"""Random brightness, contrast and saturation."""

from __future__ import annotations

import tensorflow as tf

from orbit_runner.data.order.keyed_random import JITTER, random_bits


def jitter(
    image: tf.Tensor, strength: float, seed: int, number: tf.Tensor, epoch: tf.Tensor
) -> tf.Tensor:
    """Returns an image with brightness, then contrast, then saturation scaled by random factors.

    `image` and the result are float32 [height, width, 3], 0 to 255. `number` (of the example) and
    `epoch` are int64 scalars. Each factor is uniform between 1 - `strength` (at least 0) and 1 +
    `strength`, as in Model Garden, which scales them before the image is resized.
    """
    key = tf.bitcast(random_bits(seed, number, epoch, JITTER), tf.int32)
    least = max(0.0, 1.0 - strength)
    drawn = tf.random.stateless_uniform([3], key, minval=least, maxval=1.0 + strength)
    brightness, contrast, saturation = tf.unstack(drawn)
    image = _clip_pixels(image * brightness)
    mean = tf.reduce_mean(image, axis=[0, 1])
    image = _clip_pixels(mean + (image - mean) * contrast)
    grey = tf.image.rgb_to_grayscale(image)
    return _clip_pixels(grey + (image - grey) * saturation)


def _clip_pixels(image: tf.Tensor) -> tf.Tensor:
    return tf.clip_by_value(image, 0.0, 255.0)
