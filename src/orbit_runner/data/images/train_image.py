"""The preprocessing of images for training, as a function of (seed, example, epoch)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from orbit_runner.data.images import NATURAL_MEAN, NATURAL_STD
from orbit_runner.data.images.decode import (
    Window,
    central_window,
    convert_channels,
    crop,
    decode_window,
    inception_window,
    interval_mask,
    resize,
    round_to_uint8,
)
from orbit_runner.data.order.keyed_random import random_bits, random_uniform_int
from orbit_runner.determinism.scopes import keyed_draws_scope
from orbit_runner.errors import DataError

if TYPE_CHECKING:
    from official.vision.ops import augment as garden

# From (image, seed, example number, epoch) to an image; images are uint8 [height, width, 3].
Policy = Callable[[tf.Tensor, int, tf.Tensor, tf.Tensor], tf.Tensor]
_ERASING_TRIALS = 10


def jitter(
    image: tf.Tensor, strength: float, seed: int, number: tf.Tensor, epoch: tf.Tensor
) -> tf.Tensor:
    """Returns an image with brightness, then contrast, then saturation scaled by random factors.

    `image` and the result are float32 [height, width, 3], 0 to 255. `number` (of the example) and
    `epoch` are int64 scalars. Each factor is uniform between 1 - `strength` (at least 0) and 1 +
    `strength`, as in Model Garden, which scales them before the image is resized.
    """
    key = tf.bitcast(random_bits(seed, number, epoch, "jitter"), tf.int32)
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
        key = tf.bitcast(random_bits(seed, number, epoch, "erase"), tf.int32)
        drawn = tf.random.stateless_uniform([_ERASING_TRIALS, 4], key)
        area = height * width * (self.min_area + (self.max_area - self.min_area) * drawn[:, 0])
        aspect = tf.exp(math.log(self.min_aspect) * (1 - 2 * drawn[:, 1]))
        rows, columns = tf.round(tf.sqrt(area * aspect)), tf.round(tf.sqrt(area / aspect))
        fits = (rows < height) & (columns < width)
        first = tf.argmax(fits)
        rows, columns = rows[first], columns[first]
        top, left = (height - rows) * drawn[first, 2], (width - columns) * drawn[first, 3]
        chance = tf.random.stateless_uniform([], key + 1)
        erased = tf.reduce_any(fits) & (chance < self.probability)
        inside_rows = interval_mask(tf.floor(top), rows, height)
        inside = inside_rows[:, tf.newaxis] & interval_mask(tf.floor(left), columns, width)
        noise = tf.random.stateless_normal(image.shape, key + 2)
        fill = round_to_uint8(tf.constant(NATURAL_MEAN) + tf.constant(NATURAL_STD) * noise)
        return tf.where(erased & inside[..., tf.newaxis], fill, image)


def rand_augment(
    *,
    num_layers: int,
    magnitude: float,
    cutout_const: float,
    translate_const: float,
    prob_to_apply: float | None,
    exclude_ops: Sequence[str],
) -> Policy:
    """Returns RandAugment (Cubuk et al., RandAugment, 2020), with Model Garden's arguments.

    `magnitude` is from 0 to 10. If `prob_to_apply` is None, each operation is always applied.
    Raises `DataError` if `exclude_ops` has the name of an unknown operation.
    """
    from official.vision.ops import augment as garden

    unknown = sorted(set(exclude_ops) - set(garden.RandAugment().available_ops))
    if unknown:
        known = ", ".join(garden.RandAugment().available_ops)
        raise DataError(
            f"got {unknown[0]!r} in exclude_ops of randaug; allowed: {known}",
            field="aug_type",
            code="unknown-name",
        )
    augmenter = garden.RandAugment(
        num_layers=num_layers,
        magnitude=magnitude,
        cutout_const=cutout_const,
        translate_const=translate_const,
        prob_to_apply=prob_to_apply,
        exclude_ops=list(exclude_ops),
    )
    return _keyed_policy(augmenter)


def auto_augment(*, augmentation_name: str, cutout_const: float, translate_const: float) -> Policy:
    """Returns AutoAugment (Cubuk et al., AutoAugment, 2019), with Model Garden's arguments."""
    from official.vision.ops import augment as garden

    augmenter = garden.AutoAugment(
        augmentation_name=augmentation_name,
        cutout_const=cutout_const,
        translate_const=translate_const,
    )
    return _keyed_policy(augmenter)


def _keyed_policy(augmenter: garden.ImageAugment) -> Policy:
    # Nothing here needs AutoGraph, which would take longer than the rest of the tracing.
    @tf.autograph.experimental.do_not_convert
    def policy(image: tf.Tensor, seed: int, number: tf.Tensor, epoch: tf.Tensor) -> tf.Tensor:
        with keyed_draws_scope(seed, number, epoch, "augmentation"):
            return tf.ensure_shape(augmenter.distort(image), image.shape)

    return policy


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
        flipped = random_uniform_int(*key, "flip", 2) == 1
        image = tf.cond(flipped, lambda: tf.reverse(image, [1]), lambda: image)
    if preprocessing.jitter:
        image = jitter(image, preprocessing.jitter, *key)
    pixels = round_to_uint8(tf.ensure_shape(image, shape))
    if preprocessing.policy is not None:
        pixels = preprocessing.policy(pixels, *key)
    if preprocessing.erasing is not None:
        pixels = preprocessing.erasing(pixels, *key)
    return pixels
