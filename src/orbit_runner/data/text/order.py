"""Which pairs are in the batch of a step, with about the same number of tokens in each batch."""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple, TypeAlias

import numpy as np

from orbit_runner.data.order.arrays import NUMPY, Array, Arrays
from orbit_runner.data.order.epochs import NO_EXAMPLES, EpochOrder, Rows
from orbit_runner.data.order.keyed_random import random_bits
from orbit_runner.data.order.mixture import MixtureOrder, make_order
from orbit_runner.data.order.permutation import SegmentPermutation, invert, permute
from orbit_runner.data.order.steps import Occurrences, RowOrder
from orbit_runner.data.text.source import PairSource
from orbit_runner.errors import DataError

# From tensor2tensor and Model Garden (official/nlp/data/wmt_dataloader.py).
_FIRST_WIDTH = 8
_GROWTH = 1.1


@dataclasses.dataclass(frozen=True, eq=False)
class BatchPlan:
    """How the pairs of an epoch are divided into batches, which is the same for all epochs.

    Pairs are arranged in a sequence, bucket after bucket, from the shortest to the longest. An
    epoch shuffles the pairs of each bucket, cuts the sequence at the same positions as every other
    epoch, and shuffles the batches. So each pair is in one batch of each epoch, and any batch can
    be computed independently.

    A batch may include pairs of several buckets, and is as wide as its longest sentence.
    """

    # Pair indices, bucket after bucket, -1 for a pair that is left out: int64 [n].
    members: np.ndarray
    bucket_offsets: np.ndarray  # First position of each bucket, and the end: int64 [buckets + 1].
    batch_starts: np.ndarray  # First position of each batch: int64 [steps].
    # Rows of each batch, multiples of `rows_multiple`: int64 [steps]. They may extend beyond the
    # last pair of the batch; the additional rows are padding.
    batch_rows: np.ndarray

    @functools.cached_property
    def batch_ends(self) -> np.ndarray:
        """The position after the last pair of each batch: int64 [steps]."""
        return np.append(self.batch_starts[1:], len(self.members))

    @functools.cached_property
    def is_partial(self) -> bool:
        """Whether some pairs are left out."""
        return bool((self.members < 0).any())

    def exclude(self, excluded: np.ndarray) -> BatchPlan:
        """Returns the plan without some pairs, int64 [k]. Their rows stay empty.

        All other rows keep their positions. If the pairs were removed before the batches are cut,
        every batch would change, even in steps before the pairs are first used.
        """
        if not len(excluded):
            return self
        members = np.where(np.isin(self.members, excluded), np.int64(-1), self.members)
        return dataclasses.replace(self, members=members)

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches per epoch."""
        return len(self.batch_starts)


def plan_batches(source: PairSource, *, batch_tokens: int, rows_multiple: int = 8) -> BatchPlan:
    """Returns a plan of batches of pairs of about the same length.

    `batch_tokens` is the maximum number of tokens per side of a batch, including padding. The
    number of rows of each batch is a multiple of `rows_multiple`, which must be a multiple of the
    number of replicas; apart from that, batches do not depend on that number. Raises DataError with
    the field `batch_tokens` if the longest pair does not fit.
    """
    lengths = source.lengths
    widths = bucket_widths(int(lengths.max()))
    count_batch_rows(
        batch_tokens=batch_tokens, max_length=int(widths[-1]), rows_multiple=rows_multiple
    )
    rows = batch_tokens // widths // rows_multiple * rows_multiple
    buckets = np.searchsorted(widths, lengths)
    counts = np.bincount(buckets, minlength=len(widths))
    offsets = np.concatenate([[0], np.cumsum(counts)])
    members = np.argsort(buckets, kind="stable").astype(np.int64)
    starts, sizes = _cut_batches(offsets, rows, rows_multiple)
    return BatchPlan(members, offsets, starts, sizes)


def bucket_widths(longest: int) -> np.ndarray:
    """Returns the maximum tokens of a sentence in each bucket: int64 [buckets], ascending.

    Each is about a tenth larger than the one before. The last is `longest`.
    """
    widths = []
    width = _FIRST_WIDTH
    while width < longest:
        widths.append(width)
        width = max(width + 1, int(width * _GROWTH))
    return np.array([*widths, longest], np.int64)


def count_batch_rows(*, batch_tokens: int, max_length: int, rows_multiple: int = 8) -> int:
    """Returns the number of sentences per batch, a multiple of `rows_multiple`, if it is fixed.

    `batch_tokens` is the maximum number of tokens per side of a batch, including padding. Raises
    DataError with the field `batch_tokens` if `rows_multiple` sentences of `max_length` tokens do
    not fit.
    """
    rows = batch_tokens // max_length // rows_multiple * rows_multiple
    if not rows:
        raise DataError(
            f"got {batch_tokens:,} tokens per batch, expected at least "
            f"{max_length * rows_multiple:,}: {rows_multiple} sentences "
            f"(batch_rows_multiple) of up to {max_length} tokens (the longest sentence)",
            field="batch_tokens",
            code="out-of-range",
        )
    return rows


def _cut_batches(
    offsets: np.ndarray, rows: np.ndarray, multiple: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the first position and the rows of each batch.

    A batch may include pairs of the following buckets if they fit.
    """
    ends = offsets[1:].copy()
    # The number of rows is rounded up; the additional rows are padding.
    ends[-1] += -ends[-1] % multiple
    starts = []
    counts = []
    start = 0
    while start < ends[-1]:
        # A batch whose last pair is in bucket j must fit at the width of that bucket.
        fitting = np.minimum(rows, ends - start)
        count = int(fitting.max()) // multiple * multiple
        starts.append(start)
        counts.append(count)
        start += count
    return np.array(starts, np.int64), np.array(counts, np.int64)


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
        steps_per_epoch = self._plan.steps_per_epoch
        epochs = np.arange(
            first // steps_per_epoch,
            max(first // steps_per_epoch, -(-stop // steps_per_epoch)),
            dtype=np.int64,
        )
        members = np.flatnonzero(plan.members == example)
        if not len(members):  # It is left out.
            epochs = epochs[:0]
        places = self._places_of_member(int(members.max(initial=0)), epochs)
        batches = np.searchsorted(plan.batch_starts, places, side="right") - 1
        turns = batches
        if self._shuffle:
            turns = invert(batches, steps_per_epoch, random_bits(self._seed, 0, epochs, "batch"))
        rows = places - plan.batch_starts[batches]
        before = [
            self._count_earlier_rows(int(turn), int(epoch))
            for turn, epoch in zip(turns, epochs, strict=True)
        ]
        steps = epochs * steps_per_epoch + turns
        inside = (steps >= first) & (steps < stop)
        columns = steps, rows, epochs, rows + np.array(before, np.int64)
        return Occurrences(*(column[inside] for column in columns))

    def _batches(self, turns: Array, epoch: Array) -> Array:
        """Returns the batches of the plan that are read in some turns of an epoch."""
        if not self._shuffle:
            return turns
        key = random_bits(self._seed, 0, epoch, "batch")
        return permute(turns, self._plan.steps_per_epoch, key)

    def _member_places(self, places: Array, epoch: Array) -> Array:
        """Returns which members of the plan are at places of an epoch."""
        if not self._shuffle:
            return places
        buckets = self._xp.count_at_most(self._offsets, places) - 1
        firsts = self._xp.take(self._offsets, buckets)
        keys = random_bits(self._seed, buckets, epoch, "pair")
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
        keys = random_bits(self._seed, bucket, epochs, "pair")
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
