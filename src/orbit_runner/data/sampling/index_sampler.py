"""Which example stands at which place of the endless row that training reads."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from orbit_runner.data.sampling.keyed_random import random_bits
from orbit_runner.data.sampling.permutation import permute

_SALT = 0x6F72646572


@dataclasses.dataclass(frozen=True)
class IndexSampler:
    """The order of examples as a function of (seed, position).

    Attributes:
        size: Number of examples, n.
        seed: Any integer.
        shuffle: Whether each epoch is a permutation of its own; in order otherwise.
    """

    size: int
    seed: int
    shuffle: bool = True

    def __call__(self, positions: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Looks up examples.

        Args:
            positions: int64 [b]; example j of step s with global batch B is at s·B + j.

        Returns:
            Numbers of the examples, int64 [b] of 0 to n - 1, and their epochs, int64 [b].
        """
        epochs = positions // self.size
        places = positions - epochs * self.size
        if not self.shuffle:
            return places, epochs
        keys = random_bits(self.seed, tf.zeros_like(epochs), epochs, _SALT)
        return permute(places, self.size, keys), epochs
