"""Which examples are in the batch of a step, and the inverse. Does not import TensorFlow.

Steps and epochs are numbered from 0, as in the input pipelines.
"""

from __future__ import annotations

import dataclasses
from typing import Protocol

import numpy as np

from orbit_runner.data.order.sequences import Sequence
from orbit_runner.data.sampling.numpy_permutation import (
    invert,
    invert_segments,
    permute,
    permute_segments,
)
from orbit_runner.data.sampling.numpy_random import random_bits
from orbit_runner.data.sampling.salts import BATCHES, PAIRS
from orbit_runner.data.text.buckets import BatchPlan


@dataclasses.dataclass(frozen=True)
class StepRows:
    """The rows of the global batch of a step; all columns are int64 [b]."""

    examples: np.ndarray  # Indices of the examples; -1 for a row of padding.
    epochs: np.ndarray
    places: np.ndarray  # Positions in the epoch, in reading order.


@dataclasses.dataclass(frozen=True)
class Occurrences:
    """The occurrences of an example in training, by step; all columns are int64 [k]."""

    steps: np.ndarray
    rows: np.ndarray  # Rows of the global batch.
    epochs: np.ndarray
    places: np.ndarray  # Positions in the epoch, in reading order.

    def select_steps(self, first: int, stop: int) -> Occurrences:
        """Returns the occurrences from step `first` to step `stop` - 1."""
        inside = (self.steps >= first) & (self.steps < stop)
        columns = (self.steps, self.rows, self.epochs, self.places)
        return Occurrences(*(column[inside] for column in columns))


class StepOrder(Protocol):
    """The order of the examples of training, by step."""

    @property
    def size(self) -> int:
        """The number of examples of an epoch."""
        ...

    @property
    def steps_per_epoch(self) -> float:
        """The number of steps in which each example is read once."""
        ...

    def rows(self, step: int) -> StepRows:
        """Returns the rows of the global batch of a step."""
        ...

    def occurrences(self, example: int, first: int, stop: int) -> Occurrences:
        """Returns the occurrences of an example in the steps from `first` to `stop` - 1."""
        ...


class RowOrder:
    """Batches with the same number of rows, which continue across the ends of epochs."""

    def __init__(self, sequence: Sequence, batch_size: int) -> None:
        self.size, self.steps_per_epoch = sequence.size, sequence.size / batch_size
        self._sequence, self._batch_size = sequence, batch_size

    def rows(self, step: int) -> StepRows:
        """Returns the rows of the global batch of a step."""
        positions = step * self._batch_size + np.arange(self._batch_size, dtype=np.int64)
        epochs = positions // self.size
        places = positions - epochs * self.size
        examples = np.empty_like(places)
        for epoch in np.unique(epochs):
            mask = epochs == epoch
            examples[mask] = self._sequence.examples(places[mask], int(epoch))
        return StepRows(examples, epochs, places)

    def occurrences(self, example: int, first: int, stop: int) -> Occurrences:
        """Returns the occurrences of an example in the steps from `first` to `stop` - 1."""
        ends = first * self._batch_size // self.size, -(-stop * self._batch_size // self.size)
        epochs = np.arange(ends[0], max(ends), dtype=np.int64)
        places = self._sequence.places(example, epochs)
        epochs, places = epochs[places >= 0], places[places >= 0]
        positions = epochs * self.size + places
        steps = positions // self._batch_size
        rows = positions - steps * self._batch_size
        return Occurrences(steps, rows, epochs, places).select_steps(first, stop)


class TokenOrder:
    """Batches of about the same number of tokens: the order of `BucketOrder`."""

    def __init__(self, plan: BatchPlan, seed: int, *, shuffle: bool) -> None:
        self.size = int((plan.members >= 0).sum())
        self.steps_per_epoch = float(plan.steps_per_epoch)
        self._plan, self._seed, self._shuffle = plan, seed, shuffle
        self._sizes = np.diff(plan.bucket_offsets)

    def rows(self, step: int) -> StepRows:
        """Returns the rows of the global batch of a step."""
        plan, (epoch, turn) = self._plan, divmod(step, self._plan.steps_per_epoch)
        batch = int(self._batch_indices(np.array([turn]), epoch)[0])
        places = plan.batch_starts[batch] + np.arange(plan.batch_rows[batch], dtype=np.int64)
        real = places < plan.batch_ends[batch]
        examples = plan.members[self._members(np.where(real, places, 0), epoch)]
        positions = self._count_earlier_rows(turn, epoch) + np.arange(len(places))
        return StepRows(np.where(real, examples, -1), np.full_like(places, epoch), positions)

    def occurrences(self, example: int, first: int, stop: int) -> Occurrences:
        """Returns the occurrences of an example in the steps from `first` to `stop` - 1."""
        plan, each = self._plan, self._plan.steps_per_epoch
        epochs = np.arange(first // each, max(first // each, -(-stop // each)), dtype=np.int64)
        members = np.flatnonzero(plan.members == example)
        if not len(members):  # It is left out.
            epochs = epochs[:0]
        places = self._places(int(members.max(initial=0)), epochs)
        batches = np.searchsorted(plan.batch_starts, places, side="right") - 1
        turns = batches
        if self._shuffle:
            turns = invert(batches, each, random_bits(self._seed, 0, epochs, BATCHES))
        rows = places - plan.batch_starts[batches]
        before = [
            self._count_earlier_rows(int(turn), int(epoch))
            for turn, epoch in zip(turns, epochs, strict=True)
        ]
        positions = rows + np.array(before, np.int64)
        return Occurrences(epochs * each + turns, rows, epochs, positions).select_steps(first, stop)

    def _batch_indices(self, turns: np.ndarray, epoch: int) -> np.ndarray:
        """Returns the batches of the plan that are read in some turns of an epoch."""
        if not self._shuffle:
            return turns
        key = random_bits(self._seed, 0, epoch, BATCHES)
        return permute(turns, self._plan.steps_per_epoch, key)

    def _count_earlier_rows(self, turn: int, epoch: int) -> int:
        """Returns the number of rows that an epoch reads before a turn."""
        return int(self._plan.batch_rows[self._batch_indices(np.arange(turn), epoch)].sum())

    def _members(self, places: np.ndarray, epoch: int) -> np.ndarray:
        """Returns which members of the plan are at places of an epoch."""
        if not self._shuffle:
            return places
        offsets = self._plan.bucket_offsets
        buckets = np.searchsorted(offsets, places, side="right") - 1
        keys = random_bits(self._seed, buckets, epoch, PAIRS)
        inner = places - offsets[buckets]
        return offsets[buckets] + permute_segments(inner, self._sizes, buckets, keys)

    def _places(self, member: int, epochs: np.ndarray) -> np.ndarray:
        """Returns the place of a member of the plan in each epoch."""
        if not self._shuffle:
            return np.full(len(epochs), member, np.int64)
        offsets = self._plan.bucket_offsets
        bucket = np.searchsorted(offsets, [member], side="right") - 1
        keys = random_bits(self._seed, bucket, epochs, PAIRS)
        found = invert_segments(member - offsets[bucket], self._sizes, bucket, keys)
        return offsets[bucket] + found


def row_owners(rows: int, replicas: int, workers: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns which worker and which replica get each row of a global batch, int64 [rows] each.

    It is the division of `ReplicaSlices`. `rows` must be a multiple of the number of replicas in
    sync, which must be a multiple of the number of workers.
    """
    replica = np.arange(rows, dtype=np.int64) // (rows // replicas)
    return replica // (replicas // workers), replica
