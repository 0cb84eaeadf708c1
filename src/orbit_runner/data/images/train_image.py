"""The preprocessing of images for training, as a function of (seed, example, epoch)."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from orbit_runner.data.images.augment_policies import Policy
from orbit_runner.data.images.crops import central_window, inception_window
from orbit_runner.data.images.decode import Window, crop, decode_window, resize, round_to_uint8
from orbit_runner.data.images.erasing import Erasing
from orbit_runner.data.images.eval_image import convert_channels
from orbit_runner.data.order.keyed_random import FLIP, JITTER, random_bits, random_uniform_int


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


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """How an image is cropped, resized and augmented, in the order of the fields."""

    areas: tuple[float, float] | None = None  # Range of a random crop's area; None: center crop.
    # Side of the center crop as a share of the image's shorter side; None for the whole image.
    center_crop_fraction: float | None = 0.875
    method: str = "bilinear"  # Of `tf.image.resize`.
    flip: bool = False  # Whether to mirror half of the images from left to right.
    jitter: float = 0.0  # Strength of brightness, contrast and saturation changes; 0 for none.
    policy: Policy | None = None  # Applied to the resized uint8 image.
    erasing: Erasing | None = None

    def window(self, seed: int, number: tf.Tensor, epoch: tf.Tensor) -> Window | None:
        """Returns the function that selects the part of an image to use; None for the whole image.

        `number` (of the example) and `epoch` are int64 scalars.
        """
        areas = self.areas
        fraction = self.center_crop_fraction
        if areas is not None:
            middle = 1.0 if fraction is None else fraction
            return lambda size: inception_window(size, areas, middle, seed, number, epoch)
        return None if fraction is None else lambda size: central_window(size, fraction)


def augment(
    raw: tf.Tensor,
    number: tf.Tensor,
    epoch: tf.Tensor,
    *,
    shape: tuple[int, int, int],
    seed: int,
    preprocessing: Preprocessing,
) -> tf.Tensor:
    """Returns an image, decoded, cropped, resized and augmented: uint8 of `shape`.

    `raw` is an image file (string scalar) or an image (uint8 [height, width, channels]). `number`
    (of the example) and `epoch` are int64 scalars. `shape` is (height, width, channels).
    """
    key = seed, number, epoch
    window = preprocessing.window(*key)
    if raw.dtype == tf.string:
        part = decode_window(raw, shape[2], window)
    else:
        part = crop(convert_channels(raw, shape[2]), window)
    image = resize(part, shape[:2], preprocessing.method)
    if preprocessing.flip:
        flipped = random_uniform_int(*key, FLIP, 2) == 1
        image = tf.cond(flipped, lambda: tf.reverse(image, [1]), lambda: image)
    if preprocessing.jitter:
        image = jitter(image, preprocessing.jitter, *key)
    pixels = round_to_uint8(tf.ensure_shape(image, shape))
    if preprocessing.policy is not None:
        pixels = preprocessing.policy(pixels, *key)
    if preprocessing.erasing is not None:
        pixels = preprocessing.erasing(pixels, *key)
    return pixels
