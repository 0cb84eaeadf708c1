"""Random crops and flips of whole batches; each image's draw depends on (seed, id, epoch)."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from orbit_runner.data.sampling.keyed_random import random_uniform_int
from orbit_runner.data.source import Repeated
from orbit_runner.data.table import on_cpu, stored_rows

_SALT = 0x63726F70


@dataclasses.dataclass(frozen=True)
class CropFlip:
    """A crop at a random place of the zero-padded image, back to its size, and maybe a flip.

    The augmentation of He et al., Deep Residual Learning for Image Recognition, 2015, section 4.2.

    Attributes:
        padding: Zeros added on each side, in pixels.
        flip: Whether half of the images are mirrored left to right.
    """

    padding: int = 4
    flip: bool = True

    def draw(
        self, seed: int, ids: tf.Tensor, epochs: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Draws where to crop and whether to flip.

        Args:
            seed: Any integer.
            ids: Numbers of the examples, int64 [b].
            epochs: Their epochs, int64 [b].

        Returns:
            First row and first column in the padded image (int64 [b], 0 to 2·padding), and whether
            to flip (bool [b]).
        """
        places = 2 * self.padding + 1
        # One number for all three, for each draw is a dozen operations.
        drawn = random_uniform_int(seed, ids, epochs, _SALT, places**2 * (1 + self.flip))
        pairs, left = drawn // places, drawn % places
        return pairs % places, left, pairs >= places


def crop_flip(
    images: tf.Tensor, augmentation: CropFlip, seed: int, ids: tf.Tensor, epochs: tf.Tensor
) -> tf.Tensor:
    """Crops and flips a batch.

    Args:
        images: [b, height, width, channels], all but b known.
        augmentation: What to draw.
        seed: Seed of the draws.
        ids: Numbers of the examples, int64 [b].
        epochs: Their epochs, int64 [b].

    Returns:
        The same shape and dtype.
    """
    size, margin = tuple(images.shape[1:3]), augmentation.padding
    padded = tf.pad(images, [[0, 0], [margin, margin], [margin, margin], [0, 0]])
    numbers = tf.range(tf.shape(images, tf.int64)[0])
    drawn = augmentation.draw(seed, ids, epochs)
    index = _crops(numbers, *drawn, size, tuple(padded.shape[1:3]), tf.int64)
    return tf.gather_nd(tf.reshape(padded, [-1, images.shape[3]]), index)


class CroppedImages:
    """Images, padded once, to be read in random crops."""

    def __init__(self, images: np.ndarray | Repeated, augmentation: CropFlip, seed: int) -> None:
        """Pads the images.

        Args:
            images: [n, height, width, channels].
            augmentation: What to draw.
            seed: Seed of the draws.
        """
        rows, margin = stored_rows(images), augmentation.padding
        height, width = images.shape[1:3]
        padded_size = height + 2 * margin, width + 2 * margin
        padded = np.zeros((len(rows), *padded_size, images.shape[3]), images.dtype)
        padded[:, margin : margin + height, margin : margin + width] = rows
        self._repeats, self._stored = len(rows) < len(images), len(rows)
        self._augmentation, self._seed = augmentation, seed
        self._size, self._padded_size = (height, width), padded_size
        self._pixels = on_cpu(padded.reshape(-1, images.shape[3]))
        # Half the bytes of an index are half the time to make it.
        self._index = tf.int32 if len(self._pixels) < 2**31 else tf.int64

    def __call__(self, ids: tf.Tensor, epochs: tf.Tensor) -> tf.Tensor:
        """Reads a batch.

        Args:
            ids: Numbers of the examples, int64 [b].
            epochs: Their epochs, int64 [b].

        Returns:
            [b, height, width, channels], the dtype of the images.
        """
        drawn = self._augmentation.draw(self._seed, ids, epochs)
        images = ids % self._stored if self._repeats else ids
        # Faster than `tf.gather` of the same pixels, and than gathering rows and then columns.
        return tf.gather_nd(
            self._pixels, _crops(images, *drawn, self._size, self._padded_size, self._index)
        )


def _crops(
    images: tf.Tensor,
    top: tf.Tensor,
    left: tf.Tensor,
    flipped: tf.Tensor,
    size: tuple[int, int],
    padded_size: tuple[int, int],
    dtype: tf.DType,
) -> tf.Tensor:
    """Returns where in the row of all padded pixels each pixel lies, [b, height, width, 1]."""
    height, width = (tf.range(length, dtype=tf.int64) for length in size)
    rows = (images * padded_size[0] + top)[:, tf.newaxis] + height
    columns = tf.where(flipped[:, tf.newaxis], width[::-1], width) + left[:, tf.newaxis]
    starts = tf.cast(rows * padded_size[1], dtype)
    index = starts[:, :, tf.newaxis] + tf.cast(columns, dtype)[:, tf.newaxis, :]
    return index[..., tf.newaxis]
