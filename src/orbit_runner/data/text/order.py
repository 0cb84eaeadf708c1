"""Which pairs are in the batch of a step."""

from __future__ import annotations

from typing import NamedTuple, Protocol

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


class StepPairs(NamedTuple):
    """The pairs of the global batch of a step."""

    ids: tf.Tensor  # Pair indices, int64 [rows]; -1 for a row without tokens.
    counts: tf.Tensor  # Which rows count, bool [rows].
    # Tokens of both sides, including padding: an int64 scalar. If None, the order does not say.
    width: tf.Tensor | None = None


class Order(Protocol):
    """An order of pairs."""

    rows: int | None  # Rows of each global batch, or None if they differ.
    may_be_empty: bool  # Whether all rows of a batch may be without tokens.

    def __call__(self, step: tf.Tensor) -> StepPairs:
        """Returns the pairs of the global batch of a step, an int64 scalar."""
        ...


class BucketOrder:
    """The batches of a plan, in a different order in each epoch.

    If `shuffle` is false, pairs and batches are ordered from short to long.
    """

    def __init__(self, plan: BatchPlan, seed: int, *, shuffle: bool) -> None:
        self.rows: int | None = None
        self._seed, self._shuffle, self._steps = seed, shuffle, plan.steps_per_epoch
        self._members = stored_tensor(plan.members)
        self._offsets = stored_tensor(plan.bucket_offsets)
        self.may_be_empty = plan.is_partial
        self._starts = stored_tensor(plan.batch_starts)
        self._ends = stored_tensor(plan.batch_ends)
        self._rows = stored_tensor(plan.batch_rows)
        widths = plan.batch_widths
        self._widths = None if widths is None else stored_tensor(widths)
        self._permute_within = SegmentPermutation(np.diff(plan.bucket_offsets))

    def __call__(self, step: tf.Tensor) -> StepPairs:
        """Returns the pairs of the global batch of a step, an int64 scalar."""
        epoch = step // self._steps
        batch = step - epoch * self._steps
        if self._shuffle:
            key = random_bits(self._seed, tf.zeros([1], tf.int64), epoch, BATCHES)
            batch = permute(batch[tf.newaxis], self._steps, key)[0]
        first = tf.gather(self._starts, batch)
        places = first + tf.range(tf.gather(self._rows, batch))
        real = places < tf.gather(self._ends, batch)
        ids = tf.gather(
            self._members, self._member_places(tf.where(real, places, np.int64(0)), epoch)
        )
        if self.may_be_empty:
            real &= ids >= 0
        width = None if self._widths is None else tf.gather(self._widths, batch)
        return StepPairs(tf.where(real, ids, np.int64(-1)), real, width)

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

    def __call__(self, step: tf.Tensor) -> StepPairs:
        """Returns the pairs of the global batch of a step, an int64 scalar."""
        ids, _ = self._sampler(step * self._rows + tf.range(self._rows, dtype=tf.int64))
        return StepPairs(ids, tf.ones_like(ids, tf.bool))


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

    def __call__(self, step: tf.Tensor) -> StepPairs:
        """Returns the pairs of the global batch of a step, an int64 scalar."""
        places = step * self._rows + tf.range(self._rows, dtype=tf.int64)
        ids = tf.gather(self._ids, tf.minimum(places, self._size - 1))
        return StepPairs(ids, places < self._size)
