"""An image as training sees it: a function of (seed, example, epoch)."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from orbit_runner.data.images.augment_policies import Policy
from orbit_runner.data.images.color import jitter
from orbit_runner.data.images.crops import central_window, inception_window
from orbit_runner.data.images.decode import Window, as_pixels, crop, decode_window, resize
from orbit_runner.data.images.erasing import Erasing
from orbit_runner.data.images.eval_image import with_channels
from orbit_runner.data.sampling.keyed_random import random_uniform_int

_FLIP_SALT = 0x666C6970


@dataclasses.dataclass(frozen=True)
class Variation:
    """How an image is brought to a size and varied on the way, in this order.

    Attributes:
        areas: Smallest and largest area of a random part; None for the middle.
        center_crop_fraction: Side of the middle by the image's shorter side; None for all of it.
        method: How it is resized.
        flip: Whether half of the images are mirrored left to right.
        jitter: Strength of brightness, contrast and saturation; 0 for none.
        policy: Operations on the finished pixels.
        erasing: Rectangles of noise on them.
    """

    areas: tuple[float, float] | None = None
    center_crop_fraction: float | None = 0.875
    method: str = "bilinear"
    flip: bool = False
    jitter: float = 0.0
    policy: Policy | None = None
    erasing: Erasing | None = None

    def window(self, seed: int, number: tf.Tensor, epoch: tf.Tensor) -> Window | None:
        """Returns what says which part of an image is used; None for all of it.

        Args:
            seed: Seed of the draws.
            number: Of the example, int64 scalar.
            epoch: int64 scalar.
        """
        areas, fraction = self.areas, self.center_crop_fraction
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
    variation: Variation,
) -> tf.Tensor:
    """Decodes, cuts, resizes and varies an image.

    Args:
        raw: An image file, string scalar, or an image, uint8 [height, width, channels].
        number: Of the example, int64 scalar.
        epoch: int64 scalar.
        shape: Height, width and channels of what is wanted.
        seed: Seed of all draws.
        variation: What to do.

    Returns:
        uint8 of that shape.
    """
    key = seed, number, epoch
    window = variation.window(*key)
    if raw.dtype == tf.string:
        part = decode_window(raw, shape[2], window)
    else:
        part = crop(with_channels(raw, shape[2]), window)
    image = resize(part, shape[:2], variation.method)
    if variation.flip:
        flipped = random_uniform_int(*key, _FLIP_SALT, 2) == 1
        image = tf.cond(flipped, lambda: tf.reverse(image, [1]), lambda: image)
    if variation.jitter:
        image = jitter(image, variation.jitter, *key)
    pixels = as_pixels(tf.ensure_shape(image, shape))
    if variation.policy is not None:
        pixels = variation.policy(pixels, *key)
    if variation.erasing is not None:
        pixels = variation.erasing(pixels, *key)
    return pixels
