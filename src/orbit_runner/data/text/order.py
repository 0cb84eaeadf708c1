"""Which pairs are in the batch of a step."""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple, TypeAlias

import numpy as np

from orbit_runner.data.order.arrays import NUMPY, Array, Arrays
from orbit_runner.data.order.epochs import NO_EXAMPLES, EpochOrder, Rows
from orbit_runner.data.order.keyed_random import BATCHES, PAIRS, random_bits
from orbit_runner.data.order.mixture import MixtureOrder, make_order
from orbit_runner.data.order.permutation import SegmentPermutation, invert, permute
from orbit_runner.data.order.steps import Occurrences, RowOrder
from orbit_runner.data.text.buckets import BatchPlan, count_batch_rows, plan_batches
from orbit_runner.data.text.source import PairSource


class StepPairs(NamedTuple):
    """The pairs of the global batch of a step."""

    ids: Array  # Pair indices, int64 [rows]; -1 for a row without tokens.
    counts: Array  # Which rows count, bool [rows].


class BucketOrder:
    """The batches of a plan, in a different order in each epoch.

    If `shuffle` is false, pairs and batches are ordered from short to long. `xp` are the functions
    for the steps of `__call__`; the other methods are for orders of NumPy arrays.
    """

    row_count = None  # The number of rows of each global batch, or None if they differ.

    def __init__(self, plan: BatchPlan, seed: int, *, shuffle: bool, xp: Arrays = NUMPY) -> None:
        self.size = int((plan.members >= 0).sum())
        self.steps_per_epoch = float(plan.steps_per_epoch)
        # Whether all rows of a batch may be without tokens.
        self.may_be_empty = plan.is_partial
        self._plan = plan
        self._seed = seed
        self._shuffle = shuffle
        self._xp = xp
        self._members = xp.store(plan.members)
        self._offsets = xp.store(plan.bucket_offsets)
        self._starts, self._ends = xp.store(plan.batch_starts), xp.store(plan.batch_ends)
        self._rows = xp.store(plan.batch_rows)
        self._permute_within = SegmentPermutation(np.diff(plan.bucket_offsets), xp)

    def __call__(self, step: Array) -> StepPairs:
        """Returns the pairs of the global batch of a step, an int64 scalar."""
        xp = self._xp
        steps = self._plan.steps_per_epoch
        epoch = step // steps
        batch = self._batches(step - epoch * steps, epoch)
        places = xp.take(self._starts, batch) + xp.arange(xp.take(self._rows, batch))
        real = places < xp.take(self._ends, batch)
        ids = xp.take(self._members, self._member_places(xp.where(real, places, 0), epoch))
        if self.may_be_empty:
            real &= ids >= 0
        return StepPairs(xp.where(real, ids, -1), real)

    def rows(self, step: int) -> Rows:
        """Returns the rows of the global batch of a step."""
        epoch, turn = divmod(step, self._plan.steps_per_epoch)
        ids = self(np.int64(step)).ids
        places = self._count_earlier_rows(turn, epoch) + np.arange(len(ids))
        return Rows(ids, np.full_like(places, epoch), places)

    def occurrences(self, example: int, first: int, stop: int) -> Occurrences:
        """Returns the occurrences of an example in the steps from `first` to `stop` - 1."""
        plan = self._plan
        each = self._plan.steps_per_epoch
        epochs = np.arange(first // each, max(first // each, -(-stop // each)), dtype=np.int64)
        members = np.flatnonzero(plan.members == example)
        if not len(members):  # It is left out.
            epochs = epochs[:0]
        places = self._places_of_member(int(members.max(initial=0)), epochs)
        batches = np.searchsorted(plan.batch_starts, places, side="right") - 1
        turns = batches
        if self._shuffle:
            turns = invert(batches, each, random_bits(self._seed, 0, epochs, BATCHES))
        rows = places - plan.batch_starts[batches]
        before = [
            self._count_earlier_rows(int(turn), int(epoch))
            for turn, epoch in zip(turns, epochs, strict=True)
        ]
        steps = epochs * each + turns
        inside = (steps >= first) & (steps < stop)
        columns = steps, rows, epochs, rows + np.array(before, np.int64)
        return Occurrences(*(column[inside] for column in columns))

    def _batches(self, turns: Array, epoch: Array) -> Array:
        """Returns the batches of the plan that are read in some turns of an epoch."""
        if not self._shuffle:
            return turns
        key = random_bits(self._seed, 0, epoch, BATCHES)
        return permute(turns, self._plan.steps_per_epoch, key)

    def _member_places(self, places: Array, epoch: Array) -> Array:
        """Returns which members of the plan are at places of an epoch."""
        if not self._shuffle:
            return places
        buckets = self._xp.count_at_most(self._offsets, places) - 1
        firsts = self._xp.take(self._offsets, buckets)
        keys = random_bits(self._seed, buckets, epoch, PAIRS)
        return firsts + self._permute_within(places - firsts, buckets, keys)

    def _count_earlier_rows(self, turn: int, epoch: int) -> int:
        """Returns the number of rows that an epoch reads before a turn."""
        return int(self._plan.batch_rows[self._batches(np.arange(turn), epoch)].sum())

    def _places_of_member(self, member: int, epochs: np.ndarray) -> np.ndarray:
        """Returns the place of a member of the plan in each epoch."""
        if not self._shuffle:
            return np.full(len(epochs), member, np.int64)
        offsets = self._plan.bucket_offsets
        bucket = np.searchsorted(offsets, [member], side="right") - 1
        keys = random_bits(self._seed, bucket, epochs, PAIRS)
        inner = self._permute_within.invert(member - offsets[bucket], bucket, keys)
        return offsets[bucket] + inner


class FixedRowOrder(RowOrder):
    """Batches with the same number of sentences, in another order of the pairs.

    `order` has the kind of arrays that `xp` is for.
    """

    may_be_empty = False

    def __init__(self, order: EpochOrder | MixtureOrder, rows: int, xp: Arrays = NUMPY) -> None:
        super().__init__(order, rows)
        self.row_count = rows
        self._xp = xp

    def __call__(self, step: Array) -> StepPairs:
        """Returns the pairs of the global batch of a step, an int64 scalar."""
        ids = self._order(step * self.row_count + self._xp.arange(self.row_count)).examples
        return StepPairs(ids, ids >= 0)


class SinglePassOrder:
    """Batches that contain each pair once, the longest first.

    The last is padded with a pair that does not count. `lengths`, int64 [n], are the numbers of
    tokens of the pairs.
    """

    may_be_empty = False

    def __init__(self, lengths: np.ndarray, rows: int, xp: Arrays) -> None:
        ids = np.argsort(-lengths, kind="stable")
        self._ids = xp.store(ids.astype(np.int64))
        self._size = len(lengths)
        self.row_count = rows
        self._xp = xp

    def __call__(self, step: Array) -> StepPairs:
        """Returns the pairs of the global batch of a step, an int64 scalar."""
        places = step * self.row_count + self._xp.arange(self.row_count)
        real = places < self._size
        return StepPairs(
            self._xp.take(self._ids, self._xp.where(real, places, self._size - 1)), real
        )


PairOrder: TypeAlias = BucketOrder | FixedRowOrder | SinglePassOrder


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class PairBatching:
    """How the pairs of training are divided into batches.

    Attributes:
        source: The pairs.
        batch_tokens: The maximum number of tokens per side of a global batch, including padding. A
            batch has as many sentences of about the same length as fit, and their number is a
            multiple of `rows_multiple`. 0: a global batch has `global_batch_size` sentences.
        global_batch_size: The number of sentences, if `batch_tokens` is 0.
        max_length: The maximum number of tokens of a sentence, including `EOS`. Longer pairs must
            have been left out.
        static_shapes: Whether both sides are padded to `max_length`, as required on TPUs, and all
            batches have as many sentences as fit at that length. Otherwise sides are padded to
            their longest sentence in the global batch.
        rows_multiple: A multiple of the number of replicas.
        seed: The random seed.
        shuffle: Whether to shuffle. Otherwise pairs are ordered by length, or are in stored order
            if all batches have the same number of sentences.
        excluded: The pairs to leave out, ascending, int64 [k]. If all batches have the same number
            of sentences, the others move up. Otherwise, the rows of the excluded pairs stay empty,
            like those that pad the last batch.
    """

    source: PairSource
    batch_tokens: int = 0
    global_batch_size: int = 0
    max_length: int
    static_shapes: bool = False
    rows_multiple: int = 8
    seed: int
    shuffle: bool = True
    excluded: np.ndarray = dataclasses.field(default_factory=lambda: NO_EXAMPLES)

    @functools.cached_property
    def rows(self) -> int | None:
        """The number of sentences of each global batch, or None if they differ.

        Raises `DataError` if the longest sentences do not fit.
        """
        if not self.batch_tokens:
            return self.global_batch_size
        if not self.static_shapes:
            return None
        return count_batch_rows(
            batch_tokens=self.batch_tokens,
            max_length=self.max_length,
            rows_multiple=self.rows_multiple,
        )

    def order(self, xp: Arrays = NUMPY) -> BucketOrder | FixedRowOrder:
        """Returns which pairs are in the batch of a step.

        `xp` are the functions for steps. Raises `DataError` if the longest pair does not fit.
        """
        if self.rows is not None:
            pairs = make_order(self.source.size, self.seed, self.shuffle, self.excluded, xp=xp)
            return FixedRowOrder(pairs, self.rows, xp)
        plan = plan_batches(
            self.source, batch_tokens=self.batch_tokens, rows_multiple=self.rows_multiple
        )
        return BucketOrder(plan.exclude(self.excluded), self.seed, shuffle=self.shuffle, xp=xp)
