"""Mixup and CutMix: mixtures of two images and of their labels.

Examples 2k and 2k + 1 of each global batch are mixed with each other, and the random draws for each
of them depend only on (seed, example, epoch). So batches do not depend on the number of replicas,
if each replica has an even number of examples. Because the order is a permutation of the epoch,
neighbors are a random pair.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import tensorflow as tf

from orbit_runner.data.images.decode import interval_mask, round_to_uint8
from orbit_runner.data.order.keyed_random import random_bits
from orbit_runner.data.stored_tensor import stored_tensor

_QUANTILES = 2**14
# Whether an image is mixed, whether by CutMix, its share, and the rectangle.
_PURPOSES = {"mixed": "mix1", "cut": "mix2", "share": "mix3", "row": "mix4", "column": "mix5"}


@dataclasses.dataclass(frozen=True)
class Mixing:
    """The settings of mixup and CutMix."""

    num_classes: int
    # α of Beta(α, α), an image's share in a mixture (Zhang et al., mixup, 2018); 0 for no mixup.
    mixup_alpha: float = 0.8
    # α of Beta(α, α), the area that an image keeps (Yun et al., CutMix, 2019); 0 for no CutMix.
    cutmix_alpha: float = 1.0
    prob: float = 1.0  # Probability that an image is mixed.
    switch_prob: float = 0.5  # Probability that a mixed image uses CutMix, if both are enabled.
    label_smoothing: float = 0.1  # Share of each label that is spread over all classes.


class Mixer:
    """Applies mixup and CutMix to batches."""

    def __init__(self, mixing: Mixing, seed: int) -> None:
        self._mixing = mixing
        self._seed = seed
        self._mixup = stored_tensor(_quantiles(mixing.mixup_alpha or mixing.cutmix_alpha))
        self._cutmix = stored_tensor(_quantiles(mixing.cutmix_alpha or mixing.mixup_alpha))
        has_both = mixing.mixup_alpha and mixing.cutmix_alpha
        self._switch = mixing.switch_prob if has_both else float(not mixing.mixup_alpha)

    def __call__(
        self,
        images: tf.Tensor,
        labels: tf.Tensor,
        good: tf.Tensor,
        ids: tf.Tensor,
        epochs: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Mixes each image with its neighbor, and returns the images and the class probabilities.

        `images` is uint8 [b, height, width, channels] with an even b, `labels` is int32 [b], and
        `ids` (the numbers of the examples) and `epochs` are int64 [b]. `good` (bool [b]) is False
        for missing images, which are not mixed into others. Returns uint8 [b, height, width,
        channels] and float32 [b, num_classes].
        """
        unit = {
            name: _to_unit_interval(random_bits(self._seed, ids, epochs, purpose))
            for name, purpose in _PURPOSES.items()
        }
        keeps = (unit["mixed"] >= self._mixing.prob) | ~_swap_pairs(good)
        cut = unit["cut"] < self._switch
        mixup = _interpolate(self._mixup, unit["share"])[:, tf.newaxis, tf.newaxis]
        height, width = images.shape[1:3]
        kept = self._draw_kept_pixels(unit, height, width)
        share = tf.where(cut[:, tf.newaxis, tf.newaxis], tf.cast(kept, tf.float32), mixup)
        share = tf.where(keeps[:, tf.newaxis, tf.newaxis], 1.0, share)
        pixels = tf.cast(images, tf.float32)
        other = _swap_pairs(pixels)
        mixed = round_to_uint8(other + share[..., tf.newaxis] * (pixels - other))
        classes = self._smooth_labels(labels)
        part = tf.reduce_mean(share, axis=[1, 2])[:, tf.newaxis]
        return mixed, part * classes + (1.0 - part) * _swap_pairs(classes)

    def _draw_kept_pixels(self, unit: dict[str, tf.Tensor], height: int, width: int) -> tf.Tensor:
        """Returns the pixels that an image keeps under CutMix, bool [b, height, width].

        The rectangle has a uniformly drawn center and is clipped at the edges of the image. The
        label's share is computed from the pixels, as in the authors' code.
        """
        side = tf.sqrt(1.0 - _interpolate(self._cutmix, unit["share"]))
        rows = _interval_mask(unit["row"], side, height)
        columns = _interval_mask(unit["column"], side, width)
        return ~(rows[:, :, tf.newaxis] & columns[:, tf.newaxis, :])

    def _smooth_labels(self, labels: tf.Tensor) -> tf.Tensor:
        spread = self._mixing.label_smoothing / self._mixing.num_classes
        on = 1.0 - self._mixing.label_smoothing + spread
        return tf.one_hot(labels, self._mixing.num_classes, on_value=on, off_value=spread)


@functools.lru_cache(maxsize=8)
def _quantiles(alpha: float) -> np.ndarray:
    """Returns the quantiles of Beta(α, α) at equal distances: float32 [_QUANTILES + 1]."""
    from scipy import special

    # Drawing gamma variates would need a separate call for the key of each example.
    edges = np.linspace(0, 1, _QUANTILES + 1)
    values: np.ndarray = special.betaincinv(alpha, alpha, edges).astype(np.float32)
    return values


def _swap_pairs(rows: tf.Tensor) -> tf.Tensor:
    """Swaps rows 2k and 2k + 1."""
    pairs = tf.reshape(rows, [-1, 2, *rows.shape[1:]])
    return tf.reshape(tf.reverse(pairs, [1]), rows.shape)


def _interval_mask(center: tf.Tensor, side: tf.Tensor, length: int) -> tf.Tensor:
    """Returns which pixels of a row are in an interval around a point, bool [b, length]."""
    half = tf.floor(side * length / 2)
    first = tf.floor(center * length) - half
    return interval_mask(first[:, tf.newaxis], 2 * half[:, tf.newaxis], length)


def _to_unit_interval(bits: tf.Tensor) -> tf.Tensor:
    """Returns random bits as float32 in [0, 1)."""
    upper = tf.bitwise.right_shift(bits, tf.constant(40, tf.uint64))
    return tf.cast(upper, tf.float32) * 2.0**-24


def _interpolate(quantiles: tf.Tensor, unit: tf.Tensor) -> tf.Tensor:
    place = unit * _QUANTILES
    below = tf.cast(place, tf.int32)
    low, high = tf.gather(quantiles, below), tf.gather(quantiles, below + 1)
    return low + (high - low) * (place - tf.floor(place))
