"""Keys of random draws, and how one key is derived from another.

The generator is Philox, whose output is a function of a 64-bit key and a 128-bit counter. A draw
uses a stream's key and the counter `[0, call number]`; TensorFlow increments the first word within
the draw. A derived key is the output of the generator for a counter whose second word is at least
2^63, which no draw reaches.
"""

from __future__ import annotations

import hashlib
import itertools

import numpy as np
import tensorflow as tf

PHILOX = 1
_CHILD = 1 << 63
_PIECE = _CHILD | 1 << 62
_SEEDED = _CHILD | 1 << 61


class Calls:
    """A key (uint64 [1]), and the number of the next draw that uses it."""

    def __init__(self, key: tf.Tensor) -> None:
        self.key = key
        self._numbers = itertools.count()
        self._seeded_keys: dict[int, tf.Tensor] = {}
        self._seeded_numbers: dict[int, itertools.count[int]] = {}

    def next(self) -> int:
        """Returns the next number."""
        return next(self._numbers)

    def seeded(self, seed: int, generator: object) -> tuple[tf.Tensor, int]:
        """Returns the key (uint64 [1]) and the number of the next draw of a generator with a seed.

        Generators with equal seeds have equal keys, so that they draw equal values.
        """
        if seed not in self._seeded_keys:
            self._seeded_keys[seed] = _derive(self.key, seed, _SEEDED)
        numbers = self._seeded_numbers.setdefault(id(generator), itertools.count())
        return self._seeded_keys[seed], next(numbers)

    def child_key(self, index: tf.Tensor | int = 0) -> tf.Tensor:
        """Returns the key (uint64 [1]) of a loop or a function call, which has its own draws.

        `index` is the iteration of the loop, an integer scalar.
        """
        return _derive(self.key, index, _CHILD | self.next())

    def piece_key(self, index: tf.Tensor | int) -> tf.Tensor:
        """Returns the key (uint64 [1]) of a piece, independent of earlier draws.

        `index` is an integer scalar.
        """
        return _derive(self.key, index, _PIECE)


def step_key(seed: int, purpose: str, step: tf.Tensor | int, replica: tf.Tensor | int) -> tf.Tensor:
    """Returns the key (uint64 [1]) of a replica's step.

    `step` and `replica` are integer scalars.
    """
    digest = hashlib.sha256(f"{seed} {purpose}".encode()).digest()
    root = tf.constant(np.frombuffer(digest[:8], "<u8").astype(np.uint64))
    return _derive(root, step, replica)


def _derive(key: tf.Tensor, low: tf.Tensor | int, high: tf.Tensor | int) -> tf.Tensor:
    if isinstance(low, int) and isinstance(high, int):
        counter = tf.constant(np.array([low % 2**64, high % 2**64], np.uint64))
    else:
        counter = tf.stack([_uint64(low), _uint64(high)])
    # Other public functions take a seed, which they hash again in each draw.
    return tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=[1], key=key, counter=counter, alg=PHILOX, dtype=tf.uint64
    )


def _uint64(value: tf.Tensor | int) -> tf.Tensor:
    if isinstance(value, int):
        return tf.constant(np.uint64(value % 2**64))
    return tf.cast(value, tf.uint64)
