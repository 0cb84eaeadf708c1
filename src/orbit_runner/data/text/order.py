"""Which pairs are in the batch of a step."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import tensorflow as tf

from orbit_runner.data.sampling.exclusion import make_sampler
from orbit_runner.data.sampling.keyed_random import random_bits
from orbit_runner.data.sampling.numpy_exclusion import NO_EXAMPLES
from orbit_runner.data.sampling.permutation import permute
from orbit_runner.data.sampling.salts import BATCHES, PAIRS
from orbit_runner.data.sampling.segment_permutation import SegmentPermutation
from orbit_runner.data.table import stored_tensor
from orbit_runner.data.text.buckets import BatchPlan


class Order(Protocol):
    """An order of pairs."""

    rows: int | None  # Rows of each global batch, or None if they differ.
    may_be_empty: bool  # Whether all rows of a batch may be without tokens.

    def __call__(self, step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the pairs of the global batch of a step, an int64 scalar.

        The result is the pair indices, int64 [rows], -1 for a row without tokens, and which rows
        count, bool [rows].
        """
        ...


class BucketOrder:
    """The batches of a plan, in a different order in each epoch.

    If `shuffle` is false, pairs and batches are ordered from short to long.
    """

    def __init__(self, plan: BatchPlan, seed: int, *, shuffle: bool) -> None:
        self.rows: int | None = None
        self._seed, self._shuffle, self._steps = seed, shuffle, plan.steps_per_epoch
        self._size = len(plan.members)
        self._members = stored_tensor(plan.members)
        self._offsets = stored_tensor(plan.bucket_offsets)
        self.may_be_empty = plan.is_partial
        self._starts = stored_tensor(plan.batch_starts)
        self._rows = stored_tensor(plan.batch_rows)
        self._permute_within = SegmentPermutation(np.diff(plan.bucket_offsets))

    def __call__(self, step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the pairs of the global batch of a step, as described in `Order`."""
        epoch = step // self._steps
        batch = step - epoch * self._steps
        if self._shuffle:
            key = random_bits(self._seed, tf.zeros([1], tf.int64), epoch, BATCHES)
            batch = permute(batch[tf.newaxis], self._steps, key)[0]
        first = tf.gather(self._starts, batch)
        places = first + tf.range(tf.gather(self._rows, batch))
        real = places < self._size
        ids = tf.gather(
            self._members, self._member_places(tf.where(real, places, np.int64(0)), epoch)
        )
        if self.may_be_empty:
            real &= ids >= 0
        return tf.where(real, ids, np.int64(-1)), real

    def _member_places(self, places: tf.Tensor, epoch: tf.Tensor) -> tf.Tensor:
        if not self._shuffle:
            return places
        buckets = tf.searchsorted(self._offsets, places, side="right", out_type=tf.int64) - 1
        firsts = tf.gather(self._offsets, buckets)
        keys = random_bits(self._seed, buckets, epoch, PAIRS)
        return firsts + self._permute_within(places - firsts, buckets, keys)


class RowOrder:
    """Batches with the same number of sentences, in the order of `make_sampler`.

    If `shuffle` is false, pairs are in stored order. `excluded`, int64 [k], are the pairs to leave
    out, ascending.
    """

    may_be_empty = False

    def __init__(
        self,
        size: int,
        rows: int,
        seed: int,
        *,
        shuffle: bool,
        excluded: np.ndarray = NO_EXAMPLES,
    ) -> None:
        self.rows: int | None = rows
        self._sampler, self._rows = make_sampler(size, seed, shuffle, excluded), rows

    def __call__(self, step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the pairs of the global batch of a step, as described in `Order`."""
        ids, _ = self._sampler(step * self._rows + tf.range(self._rows, dtype=tf.int64))
        return ids, tf.ones_like(ids, tf.bool)


class SinglePassOrder:
    """Batches that contain each pair once; the last is padded with a pair that does not count.

    `lengths`, int64 [n], are the numbers of tokens of the pairs. If `by_length` is true, the
    longest pairs come first; otherwise pairs are in stored order.
    """

    may_be_empty = False

    def __init__(self, lengths: np.ndarray, rows: int, *, by_length: bool) -> None:
        ids = np.argsort(-lengths, kind="stable") if by_length else np.arange(len(lengths))
        self.rows: int | None = rows
        self._ids, self._size, self._rows = stored_tensor(ids.astype(np.int64)), len(lengths), rows

    def __call__(self, step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the pairs of the global batch of a step, as described in `Order`."""
        places = step * self._rows + tf.range(self._rows, dtype=tf.int64)
        return tf.gather(self._ids, tf.minimum(places, self._size - 1)), places < self._size
