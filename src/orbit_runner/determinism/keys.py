"""Keys of random draws, and how one follows from another.

The generator is Philox, whose output is a function of a 64-bit key and a 128-bit counter. A draw
takes a stream's key and `[0, call number]` as its counter; TensorFlow counts up the first word
within the draw. A key below a key is what the generator gives for a counter whose second word is
at least 2^63, where no draw gets.
"""

from __future__ import annotations

import hashlib
import itertools

import numpy as np
import tensorflow as tf

# Public functions take a seed, which they hash anew in each draw.
from tensorflow.python.ops import gen_stateless_random_ops_v2 as stateless

PHILOX = 1
_BELOW = 1 << 63
_PIECE = _BELOW | 1 << 62


class Calls:
    """A key, and the number of the next draw that takes it."""

    def __init__(self, key: tf.Tensor) -> None:
        """Starts to count.

        Args:
            key: uint64 [1].
        """
        self.key = key
        self._numbers = itertools.count()

    def next(self) -> int:
        """Returns the next number."""
        return next(self._numbers)

    def below(self, index: tf.Tensor | int = 0) -> tf.Tensor:
        """Makes the key of something with draws of its own, a loop or a function that is called.

        Args:
            index: Integer scalar, the turn of the loop.

        Returns:
            uint64 [1].
        """
        return _derive(self.key, index, _BELOW | self.next())

    def piece(self, index: tf.Tensor | int) -> tf.Tensor:
        """Makes the key of a piece, whatever was drawn before.

        Args:
            index: Integer scalar.

        Returns:
            uint64 [1].
        """
        return _derive(self.key, index, _PIECE)


def step_key(seed: int, purpose: str, step: tf.Tensor | int, replica: tf.Tensor | int) -> tf.Tensor:
    """Makes the key of a replica's step.

    Args:
        seed: Any integer.
        purpose: What is drawn for.
        step: Integer scalar.
        replica: Integer scalar.

    Returns:
        uint64 [1].
    """
    digest = hashlib.sha256(f"{seed} {purpose}".encode()).digest()
    root = tf.constant(np.frombuffer(digest[:8], "<u8").astype(np.uint64))
    return _derive(root, step, replica)


def _derive(key: tf.Tensor, low: tf.Tensor | int, high: tf.Tensor | int) -> tf.Tensor:
    if isinstance(low, int) and isinstance(high, int):
        counter = tf.constant(np.array([low % 2**64, high % 2**64], np.uint64))
    else:
        counter = tf.stack([_uint64(low), _uint64(high)])
    return stateless.stateless_random_uniform_full_int_v2(
        [1], key, counter, PHILOX, dtype=tf.uint64
    )


def _uint64(value: tf.Tensor | int) -> tf.Tensor:
    if isinstance(value, int):
        return tf.constant(np.uint64(value % 2**64))
    return tf.cast(value, tf.uint64)
