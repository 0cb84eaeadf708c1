"""Random crops and flips of whole batches; each image's draw depends on (seed, id, epoch)."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from orbit_runner.data.arrays import Gathered, stored_rows
from orbit_runner.data.order.keyed_random import random_uniform_int
from orbit_runner.data.stored_tensor import row_finder, stored_tensor


@dataclasses.dataclass(frozen=True)
class CropFlip:
    """A random crop of the zero-padded image to its original size, and optionally a random flip.

    This is the augmentation of He et al., Deep Residual Learning for Image Recognition, 2015,
    section 4.2.
    """

    padding: int = 4  # Zeros added on each side, in pixels.
    flip: bool = True  # Whether to mirror half of the images from left to right.

    def draw(
        self, seed: int, ids: tf.Tensor, epochs: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns the first row and the first column in padded images, and which are mirrored.

        The first two are int64 [b], from 0 to 2·padding. `ids` and `epochs` are int64 [b].
        """
        places = 2 * self.padding + 1
        # One number for all three, because each draw takes a dozen ops.
        drawn = random_uniform_int(seed, ids, epochs, "crop", places**2 * (1 + self.flip))
        pairs, left = drawn // places, drawn % places
        return pairs % places, left, pairs >= places


def crop_flip(
    images: tf.Tensor, augmentation: CropFlip, seed: int, ids: tf.Tensor, epochs: tf.Tensor
) -> tf.Tensor:
    """Returns the images of a batch, randomly cropped and flipped, in the same shape and dtype.

    `images` is [b, height, width, channels]; all dimensions but b must be static. `ids` (the
    numbers of the examples) and `epochs` are int64 [b].
    """
    size = tuple(images.shape[1:3])
    margin = augmentation.padding
    padded = tf.pad(images, [[0, 0], [margin, margin], [margin, margin], [0, 0]])
    numbers = tf.range(tf.shape(images, tf.int64)[0])
    drawn = augmentation.draw(seed, ids, epochs)
    index = _pixel_indices(numbers, *drawn, size, tuple(padded.shape[1:3]), tf.int64)
    return tf.gather_nd(tf.reshape(padded, [-1, images.shape[3]]), index)


class CroppedImages:
    """Random crops of images [n, height, width, channels], which are padded once."""

    def __init__(self, images: np.ndarray | Gathered, augmentation: CropFlip, seed: int) -> None:
        rows = stored_rows(images)
        margin = augmentation.padding
        height, width = images.shape[1:3]
        padded_size = height + 2 * margin, width + 2 * margin
        padded = np.zeros((len(rows), *padded_size, images.shape[3]), images.dtype)
        padded[:, margin : margin + height, margin : margin + width] = rows
        self._find = row_finder(images)
        self._augmentation = augmentation
        self._seed = seed
        self._size = (height, width)
        self._padded_size = padded_size
        self._pixels = stored_tensor(padded.reshape(-1, images.shape[3]))
        # An int32 index takes half as long to compute as an int64 index.
        self._index = tf.int32 if len(self._pixels) < 2**31 else tf.int64

    def __call__(self, ids: tf.Tensor, epochs: tf.Tensor) -> tf.Tensor:
        """Returns a batch of crops, [b, height, width, channels], in the dtype of the images.

        `ids` (the numbers of the examples) and `epochs` are int64 [b].
        """
        drawn = self._augmentation.draw(self._seed, ids, epochs)
        index = _pixel_indices(self._find(ids), *drawn, self._size, self._padded_size, self._index)
        # Faster than `tf.gather` of the same pixels, or of rows and then columns.
        return tf.gather_nd(self._pixels, index)


def _pixel_indices(
    images: tf.Tensor,
    top: tf.Tensor,
    left: tf.Tensor,
    flipped: tf.Tensor,
    size: tuple[int, int],
    padded_size: tuple[int, int],
    dtype: tf.DType,
) -> tf.Tensor:
    """Returns the index of each pixel in the list of all padded pixels, [b, height, width, 1]."""
    height, width = (tf.range(length, dtype=tf.int64) for length in size)
    rows = (images * padded_size[0] + top)[:, tf.newaxis] + height
    columns = tf.where(flipped[:, tf.newaxis], width[::-1], width) + left[:, tf.newaxis]
    starts = tf.cast(rows * padded_size[1], dtype)
    index = starts[:, :, tf.newaxis] + tf.cast(columns, dtype)[:, tf.newaxis, :]
    return index[..., tf.newaxis]
