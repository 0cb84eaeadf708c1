"""Mixtures of two images and of their labels: mixup and cutmix.

Examples 2k and 2k + 1 of each global batch are mixed with each other, and what is drawn for one of
them depends on (seed, example, epoch) alone. So batches do not depend on the number of replicas, as
long as each replica has an even number of examples. The order is a permutation of the epoch, which
makes neighbours a random pair.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from orbit_runner.data.images.decode import as_pixels
from orbit_runner.data.sampling.keyed_random import random_bits
from orbit_runner.data.table import on_cpu

_SALTS = {"mixed": 0x6D697831, "cut": 0x6D697832, "share": 0x6D697833, "row": 0x6D697834,
          "column": 0x6D697835}  # fmt: skip
_QUANTILES = 2**14


@dataclasses.dataclass(frozen=True)
class Mixing:
    """What is drawn for an image.

    Attributes:
        num_classes: Number of labels.
        mixup_alpha: Of Beta(α, α), an image's share in a mixture (Zhang et al., mixup, 2018);
            0 for no mixup.
        cutmix_alpha: Of Beta(α, α), the area that an image keeps (Yun et al., CutMix, 2019); 0 for
            no cutmix.
        prob: Chance of an image to be mixed.
        switch_prob: Chance of cutmix for one that is, where both are on.
        label_smoothing: Share of each label that is spread over all classes.
    """

    num_classes: int
    mixup_alpha: float = 0.8
    cutmix_alpha: float = 1.0
    prob: float = 1.0
    switch_prob: float = 0.5
    label_smoothing: float = 0.1


class Mixer:
    """Mixes batches."""

    def __init__(self, mixing: Mixing, seed: int) -> None:
        """Lays out the distributions.

        Args:
            mixing: What to draw.
            seed: Seed of the draws.
        """
        self._mixing, self._seed = mixing, seed
        self._mixup = _quantiles(mixing.mixup_alpha or mixing.cutmix_alpha)
        self._cutmix = _quantiles(mixing.cutmix_alpha or mixing.mixup_alpha)
        both = mixing.mixup_alpha and mixing.cutmix_alpha
        self._switch = mixing.switch_prob if both else float(not mixing.mixup_alpha)

    def __call__(
        self,
        images: tf.Tensor,
        labels: tf.Tensor,
        good: tf.Tensor,
        ids: tf.Tensor,
        epochs: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Mixes each image with its neighbour.

        Args:
            images: uint8 [b, height, width, channels], b even.
            labels: int32 [b].
            good: Which images there are, bool [b]; the others are mixed into none.
            ids: Numbers of the examples, int64 [b].
            epochs: Their epochs, int64 [b].

        Returns:
            uint8 [b, height, width, channels], and the shares of the classes, float32
            [b, num_classes].
        """
        unit = {
            name: _unit(random_bits(self._seed, ids, epochs, salt)) for name, salt in _SALTS.items()
        }
        keeps = (unit["mixed"] >= self._mixing.prob) | ~_neighbours(good)
        cut = unit["cut"] < self._switch
        mixup = _read(self._mixup, unit["share"])[:, tf.newaxis, tf.newaxis]
        height, width = images.shape[1:3]
        kept = self._draw_kept_pixels(unit, height, width)
        share = tf.where(cut[:, tf.newaxis, tf.newaxis], tf.cast(kept, tf.float32), mixup)
        share = tf.where(keeps[:, tf.newaxis, tf.newaxis], 1.0, share)
        pixels = tf.cast(images, tf.float32)
        other = _neighbours(pixels)
        mixed = as_pixels(other + share[..., tf.newaxis] * (pixels - other))
        classes = self._smooth(labels)
        part = tf.reduce_mean(share, axis=[1, 2])[:, tf.newaxis]
        return mixed, part * classes + (1.0 - part) * _neighbours(classes)

    def _draw_kept_pixels(self, unit: dict[str, tf.Tensor], height: int, width: int) -> tf.Tensor:
        """Draws the pixels that an image keeps under cutmix, bool [b, height, width].

        A rectangle around a uniform point is cut off at the edges, so that the share of the label
        is that of the pixels, as in the authors' own code.
        """
        side = tf.sqrt(1.0 - _read(self._cutmix, unit["share"]))
        rows = _inside(unit["row"], side, height)
        columns = _inside(unit["column"], side, width)
        return ~(rows[:, :, tf.newaxis] & columns[:, tf.newaxis, :])

    def _smooth(self, labels: tf.Tensor) -> tf.Tensor:
        spread = self._mixing.label_smoothing / self._mixing.num_classes
        on = 1.0 - self._mixing.label_smoothing + spread
        return tf.one_hot(labels, self._mixing.num_classes, on_value=on, off_value=spread)


def _neighbours(rows: tf.Tensor) -> tf.Tensor:
    """Swaps rows 2k and 2k + 1."""
    pairs = tf.reshape(rows, [-1, 2, *rows.shape[1:]])
    return tf.reshape(tf.reverse(pairs, [1]), rows.shape)


def _inside(center: tf.Tensor, side: tf.Tensor, length: int) -> tf.Tensor:
    """Tells which of the pixels in a row lie in a part of it around a point, bool [b, length]."""
    half = tf.floor(side * length / 2)
    first = (tf.floor(center * length) - half)[:, tf.newaxis]
    places = tf.range(length, dtype=tf.float32)
    return (places >= first) & (places < first + 2 * half[:, tf.newaxis])


def _unit(bits: tf.Tensor) -> tf.Tensor:
    """Turns random bits into float32 of 0 to below 1."""
    upper = tf.bitwise.right_shift(bits, tf.constant(40, tf.uint64))
    return tf.cast(upper, tf.float32) * 2.0**-24


def _quantiles(alpha: float) -> tf.Tensor:
    from scipy import special

    # A gamma variate an example would need a call of its own for each key.
    edges = np.linspace(0, 1, _QUANTILES + 1)
    return on_cpu(special.betaincinv(alpha, alpha, edges).astype(np.float32))


def _read(quantiles: tf.Tensor, unit: tf.Tensor) -> tf.Tensor:
    place = unit * _QUANTILES
    below = tf.cast(place, tf.int32)
    low, high = tf.gather(quantiles, below), tf.gather(quantiles, below + 1)
    return low + (high - low) * (place - tf.floor(place))
