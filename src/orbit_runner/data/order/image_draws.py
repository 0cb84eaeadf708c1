"""The random draws of image augmentation. Does not import TensorFlow.

The functions for arrays make the draws of the ops that augment images; those for NumPy only draw
the same numbers again. Arguments: `ids`, the indices of the examples, and `epochs`, both int64 [b].
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from orbit_runner.data.order.arrays import Array
from orbit_runner.data.order.keyed_random import (
    AREA_CROP,
    COLUMN,
    CROP_FLIP,
    CUT,
    ERASING,
    FLIP,
    JITTER,
    MIXED,
    ROW,
    SHARE,
    random_bits,
    random_uniform_int,
)
from orbit_runner.data.order.philox import random_words, to_floats, uniforms

QUANTILES = 2**14
ERASING_TRIALS = 10
CROP_ATTEMPTS = 10
ASPECTS = (3 / 4, 4 / 3)
# Four words per attempt, and some for numbers that are drawn again.
_CROP_WORDS = 64


class CropFlips(NamedTuple):
    """The draws of `CropFlip`, all [b]."""

    top: Array  # The first row in the padded image, int64 from 0 to 2·padding.
    left: Array  # The first column.
    flipped: Array  # Whether the image is mirrored from left to right, bool.


def crop_flips(seed: int, ids: Array, epochs: Array, *, padding: int, flip: bool) -> CropFlips:
    """Returns the draws of `CropFlip` for NumPy arrays or tensors."""
    places = 2 * padding + 1
    # One number for all three, because each draw takes a dozen ops.
    drawn = random_uniform_int(seed, ids, epochs, CROP_FLIP, places**2 * (1 + flip))
    pairs, left = drawn // places, drawn % places
    return CropFlips(pairs % places, left, pairs >= places)


def flips(seed: int, ids: Array, epochs: Array) -> Array:
    """Returns which images are mirrored from left to right, for NumPy arrays or tensors: bool."""
    return random_uniform_int(seed, ids, epochs, FLIP, 2) == 1


def jitters(seed: int, ids: np.ndarray, epochs: np.ndarray, strength: float) -> np.ndarray:
    """Returns the factors of brightness, contrast and saturation of `jitter`: float32 [b, 3]."""
    least, most = np.float32(max(0.0, 1.0 - strength)), np.float32(1.0 + strength)
    return uniforms(random_bits(seed, ids, epochs, JITTER), 3) * (most - least) + least


def erased_rectangle(
    seed: int,
    number: int,
    epoch: int,
    size: tuple[int, int],
    *,
    probability: float,
    min_area: float,
    max_area: float,
    min_aspect: float,
) -> tuple[int, int, int, int] | None:
    """Returns the rectangle that `Erasing` fills: first row, first column, height, width.

    None if it fills none. `size` is the height and width of the image.
    """
    bits = random_bits(seed, np.array([number]), epoch, ERASING)
    drawn = uniforms(bits, ERASING_TRIALS * 4).reshape(ERASING_TRIALS, 4)
    height, width = size
    one = np.float32(1)
    area = np.float32(height * width) * (
        np.float32(min_area) + np.float32(max_area - min_area) * drawn[:, 0]
    )
    aspect = np.exp(np.float32(math.log(min_aspect)) * (one - np.float32(2) * drawn[:, 1]))
    rows, columns = np.round(np.sqrt(area * aspect)), np.round(np.sqrt(area / aspect))
    fits = (rows < height) & (columns < width)
    first = int(np.argmax(fits))
    if not fits.any() or uniforms(bits, 1, offset=1)[0, 0] >= np.float32(probability):
        return None
    top = math.floor((np.float32(height) - rows[first]) * drawn[first, 2])
    left = math.floor((np.float32(width) - columns[first]) * drawn[first, 3])
    return top, left, int(rows[first]), int(columns[first])


@dataclasses.dataclass(frozen=True)
class Mixtures:
    """The draws of `Mixer`, all [b]; the partner of row r of a global batch is row r ^ 1."""

    mixed: np.ndarray  # Whether an image is mixed with its partner, if both can be decoded.
    cut: np.ndarray  # Whether by CutMix; otherwise by mixup.
    share: np.ndarray  # The share of the image itself, float32; 1 if it is not mixed.


def mixtures(
    seed: int,
    ids: np.ndarray,
    epochs: np.ndarray,
    size: tuple[int, int],
    *,
    mixup_alpha: float,
    cutmix_alpha: float,
    prob: float,
    switch_prob: float,
) -> Mixtures:
    """Returns the draws of `Mixer` for images of a height and width."""
    unit = {salt: _to_unit_interval(random_bits(seed, ids, epochs, salt))
            for salt in (MIXED, CUT, SHARE, ROW, COLUMN)}  # fmt: skip
    switch = switch_prob if mixup_alpha and cutmix_alpha else float(not mixup_alpha)
    mixed = unit[MIXED] < np.float32(prob)
    cut = unit[CUT] < np.float32(switch)
    mixup = _interpolate(quantiles(mixup_alpha or cutmix_alpha), unit[SHARE])
    side = np.sqrt(
        np.float32(1) - _interpolate(quantiles(cutmix_alpha or mixup_alpha), unit[SHARE])
    )
    pixels = _interval_lengths(unit[ROW], side, size[0]) * _interval_lengths(
        unit[COLUMN], side, size[1]
    )
    kept = np.float32(1) - (pixels / (size[0] * size[1])).astype(np.float32)
    return Mixtures(mixed, cut, np.where(mixed, np.where(cut, kept, mixup), np.float32(1)))


@functools.lru_cache(maxsize=8)
def quantiles(alpha: float) -> np.ndarray:
    """Returns the quantiles of Beta(α, α) at equal distances: float32 [QUANTILES + 1]."""
    from scipy import special

    # Drawing gamma variates would need a separate call for the key of each example.
    edges = np.linspace(0, 1, QUANTILES + 1)
    values: np.ndarray = special.betaincinv(alpha, alpha, edges).astype(np.float32)
    return values


def area_crop(
    seed: int, number: int, epoch: int, size: tuple[int, int], areas: Sequence[float]
) -> tuple[int, int, int, int] | None:
    """Returns the window that `inception_window` draws: first row, first column, height, width.

    None if no draw fits the image, or the whole image is drawn: then, the central window is used.
    `size` is the height and width of the image.
    """
    bits = random_bits(seed, np.array([number]), epoch, AREA_CROP)
    words = iter(random_words(bits, _CROP_WORDS)[0])
    low, high = (np.float32(aspect) for aspect in ASPECTS)
    least, most = (np.float32(area) for area in areas)
    for _ in range(CROP_ATTEMPTS):
        aspect = to_floats(np.array([next(words)], np.uint32))[0] * (high - low) + low
        crop = _draw_crop(size, least, most, aspect, words)
        if crop is not None and _is_large_enough(crop, size, least):
            return None if crop[2:] == size else crop
    return None


def _draw_crop(
    size: tuple[int, int],
    least: np.float32,
    most: np.float32,
    aspect: np.float32,
    words: Iterator[np.uint32],
) -> tuple[int, int, int, int] | None:
    """Returns a window of an aspect (width / height) and a random height, None if it is too large.

    It follows `GenerateRandomCrop` in TensorFlow's `sample_distorted_bounding_box_op.cc`.
    """
    rows, columns = size
    smallest, largest = (area * np.float32(columns) * np.float32(rows) for area in (least, most))
    height = _round(np.sqrt(smallest / aspect))
    limit = _round(np.sqrt(largest / aspect))
    if _round(np.float32(limit) * aspect) > columns:
        limit = int((columns + 0.5 - float(np.float32(1e-7))) / float(aspect))
        limit -= _round(np.float32(limit) * aspect) > columns
    limit = min(limit, rows)
    height = min(height, limit)
    if height < limit:
        height += _draw_below(limit - height + 1, words)
    width = _round(np.float32(height) * aspect)
    for step, wrong in ((1, width * height < smallest), (-1, width * height > largest)):
        if wrong:
            height += step
            width = _round(np.float32(height) * aspect)
    fits = smallest <= width * height <= largest and 0 < width <= columns and 0 < height <= rows
    if not fits:
        return None
    top = _draw_below(rows - height, words) if height < rows else 0
    left = _draw_below(columns - width, words) if width < columns else 0
    return top, left, height, width


def _round(value: np.float32) -> int:
    return int(np.rint(value))


def _draw_below(limit: int, words: Iterator[np.uint32]) -> int:
    """Returns a random integer from 0 to `limit` - 1."""
    word = int(next(words))
    if limit & (limit - 1) == 0:
        return word & (limit - 1)
    # Smaller words would make some numbers more likely than others.
    while word < (2**32 - 1) % limit + 1:
        word = int(next(words))
    return word % limit


def _is_large_enough(
    window: tuple[int, int, int, int], size: tuple[int, int], least: np.float32
) -> bool:
    area = np.float32(window[2] * window[3])
    return bool(area / np.float32(size[0] * size[1]) >= least)


def _to_unit_interval(bits: np.ndarray) -> np.ndarray:
    return (bits >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)


def _interpolate(table: np.ndarray, unit: np.ndarray) -> np.ndarray:
    place = unit * np.float32(QUANTILES)
    below = place.astype(np.int32)
    low, high = table[below], table[below + 1]
    return low + (high - low) * (place - np.floor(place))


def _interval_lengths(center: np.ndarray, side: np.ndarray, length: int) -> np.ndarray:
    """Returns how many pixels of a row are in an interval around a point, int64 [b]."""
    half = np.floor(side * np.float32(length) / np.float32(2))
    first = np.floor(center * np.float32(length)) - half
    stop = np.minimum(first + 2 * half, length)
    return np.maximum(stop - np.maximum(first, 0), 0).astype(np.int64)
