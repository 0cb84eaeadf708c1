"""Random brightness, contrast and saturation."""

from __future__ import annotations

import tensorflow as tf

from orbit_runner.data.sampling.keyed_random import random_bits

_SALT = 0x6A6974746572


def jitter(
    image: tf.Tensor, strength: float, seed: int, number: tf.Tensor, epoch: tf.Tensor
) -> tf.Tensor:
    """Varies brightness, then contrast, then saturation, each by a factor of its own.

    Factors are uniform between 1 - strength, at least 0, and 1 + strength, as in Model Garden,
    which varies the image before it is resized.

    Args:
        image: float32 [height, width, 3], 0 to 255.
        strength: The largest part by which a factor differs from 1.
        seed: Seed of the factors.
        number: Of the example, int64 scalar.
        epoch: int64 scalar.

    Returns:
        float32 [height, width, 3], 0 to 255.
    """
    key = tf.bitcast(random_bits(seed, number, epoch, _SALT), tf.int32)
    least = max(0.0, 1.0 - strength)
    drawn = tf.random.stateless_uniform([3], key, minval=least, maxval=1.0 + strength)
    brightness, contrast, saturation = tf.unstack(drawn)
    image = _pixels(image * brightness)
    mean = tf.reduce_mean(image, axis=[0, 1])
    image = _pixels(mean + (image - mean) * contrast)
    grey = tf.image.rgb_to_grayscale(image)
    return _pixels(grey + (image - grey) * saturation)


def _pixels(image: tf.Tensor) -> tf.Tensor:
    return tf.clip_by_value(image, 0.0, 255.0)
