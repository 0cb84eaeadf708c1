"""Which example is at which position of the infinite sequence that training reads."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from orbit_runner.data.sampling.keyed_random import random_bits
from orbit_runner.data.sampling.permutation import invert, permute
from orbit_runner.data.sampling.salts import EXAMPLES


@dataclasses.dataclass(frozen=True)
class IndexSampler:
    """The order of examples as a function of (seed, position).

    If `shuffle` is true, each epoch has its own permutation; otherwise examples are in stored
    order.
    """

    size: int  # Number of examples.
    seed: int
    shuffle: bool = True

    def __call__(self, positions: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns example indices, int64 [b], from 0 to size - 1, and their epochs, int64 [b].

        `positions` is int64 [b]. Example j of step s with global batch size B is at position s·B +
        j.
        """
        epochs = positions // self.size
        return self.examples(positions - epochs * self.size, epochs), epochs

    def examples(self, places: tf.Tensor, epochs: tf.Tensor) -> tf.Tensor:
        """Returns the examples at places of epochs; all are int64 [b]."""
        if not self.shuffle:
            return places
        keys = random_bits(self.seed, tf.zeros_like(epochs), epochs, EXAMPLES)
        return permute(places, self.size, keys)

    def places(self, examples: tf.Tensor, epoch: tf.Tensor) -> tf.Tensor:
        """Returns the places of examples in an epoch, an int64 scalar; the others are int64 [k]."""
        if not self.shuffle:
            return examples
        keys = random_bits(self.seed, tf.zeros([1], tf.int64), epoch, EXAMPLES)
        return invert(examples, self.size, keys)
