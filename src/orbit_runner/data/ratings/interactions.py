"""Interactions of users with items, and the split that holds out the latest one of each user."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import numpy as np

from orbit_runner.errors import DataError


@dataclasses.dataclass(frozen=True, eq=False)
class Interactions:
    """The interactions in a file, in the order of the file."""

    name: str
    users: np.ndarray  # Published ids, int64 [n].
    items: np.ndarray  # Published ids, int64 [n].
    times: np.ndarray  # In any unit, int64 [n].
    known_items: np.ndarray | None = None  # All item ids, ascending. If None, those in `items`.
    files: tuple[Path, ...] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class RatingSource:
    """The training interactions, sorted by user and item, and one held-out item of each user.

    Users and items are numbered from 0 in the order of their published ids.
    """

    name: str
    user_ids: np.ndarray  # Published ids, int64 [users], ascending.
    item_ids: np.ndarray  # Published ids, int64 [items], ascending.
    users: np.ndarray  # int32 [n].
    items: np.ndarray  # int32 [n].
    held_out: np.ndarray  # The test item of each user, int32 [users].
    files: tuple[Path, ...] = ()

    @property
    def num_users(self) -> int:
        """The number of users."""
        return len(self.user_ids)

    @property
    def num_items(self) -> int:
        """The number of items."""
        return len(self.item_ids)

    @property
    def size(self) -> int:
        """The number of training interactions."""
        return len(self.users)

    @functools.cached_property
    def starts(self) -> np.ndarray:
        """The index of each user's first interaction, then the total: int64 [users + 1]."""
        counts = np.bincount(self.users, minlength=self.num_users)
        return np.concatenate([[0], np.cumsum(counts)])


def leave_one_out(interactions: Interactions, min_interactions: int = 20) -> RatingSource:
    """Returns the interactions, with the latest one of each user held out.

    If two interactions have the same time, the one further down in the file is the later one. If a
    user has several interactions with an item, only the latest counts. Users with fewer than
    `min_interactions`, or fewer than 2, are left out. Raises DataError if no user is left.
    """
    latest = _keep_latest_of_pairs(interactions)
    chosen = _number_ids(latest.users)
    counts = np.bincount(chosen[1])
    kept = counts[chosen[1]] >= max(2, min_interactions)
    if not kept.any():
        raise DataError(
            f"{latest.name}: got {len(counts):,} users with at most {counts.max():,} interactions "
            f"each, expected some with at least {min_interactions}",
            field="min_interactions",
            code="empty-data",
        )
    user_ids, users = _number_ids(latest.users[kept])
    item_ids, items = _number_ids(latest.items[kept])
    if latest.known_items is not None:
        items = np.searchsorted(latest.known_items, item_ids)[items]
        item_ids = latest.known_items
    last = _latest_rows(users, latest.times[kept])
    held_out = items[last]
    trained = np.ones(len(users), bool)
    trained[last] = False
    keys = np.sort(users[trained] * np.int64(len(item_ids)) + items[trained])
    return RatingSource(
        name=latest.name,
        user_ids=user_ids,
        item_ids=item_ids,
        users=(keys // len(item_ids)).astype(np.int32),
        items=(keys % len(item_ids)).astype(np.int32),
        held_out=held_out.astype(np.int32),
        files=latest.files,
    )


def _number_ids(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if ids.min() >= 0 and ids.max() < 2**26:  # A table is faster than a sort of 20 million ids.
        present = np.zeros(int(ids.max()) + 1, bool)
        present[ids] = True
        # As int32, because the table of a few large ids would take 500 MB as int64.
        numbers = np.cumsum(present, dtype=np.int32)[ids].astype(np.int64) - 1
        return np.flatnonzero(present), numbers
    known, numbers = np.unique(ids, return_inverse=True)
    return known, numbers


def _latest_rows(users: np.ndarray, times: np.ndarray) -> np.ndarray:
    latest = np.full(users.max() + 1, np.iinfo(np.int64).min)
    np.maximum.at(latest, users, times)
    candidates = np.flatnonzero(times == latest[users])
    # If an index occurs more than once, the last assignment wins.
    last = np.empty(len(latest), np.int64)
    last[users[candidates]] = candidates
    return last


def _keep_latest_of_pairs(interactions: Interactions) -> Interactions:
    users, items = _number_ids(interactions.users)[1], _number_ids(interactions.items)[1]
    pairs = users * (items.max() + 1) + items
    ordered = np.sort(pairs)
    if (ordered[1:] != ordered[:-1]).all():
        return interactions
    order = np.lexsort((np.arange(len(pairs)), interactions.times, pairs))
    is_last = np.append(pairs[order][1:] != pairs[order][:-1], True)
    kept = np.sort(order[is_last])
    return dataclasses.replace(
        interactions,
        users=interactions.users[kept],
        items=interactions.items[kept],
        times=interactions.times[kept],
    )
