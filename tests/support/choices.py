"""User-item interactions for the tests of `data/ratings/`."""

from __future__ import annotations

import numpy as np

from orbit_runner.data.ratings.interactions import RatingSource


def make_choices(num_users: int = 13, num_items: int = 17, seed: int = 2) -> RatingSource:
    """Makes from 1 to all but one choices per user, and another one held out."""
    generator = np.random.default_rng(seed)
    rows = [
        generator.permutation(num_items)[: 2 + user % (num_items - 1)] for user in range(num_users)
    ]
    return RatingSource(
        name="made",
        user_ids=np.arange(num_users),
        item_ids=np.arange(num_items),
        users=np.repeat(np.arange(num_users), [len(row) - 1 for row in rows]).astype(np.int32),
        items=np.concatenate([np.sort(row[1:]) for row in rows]).astype(np.int32),
        held_out=np.array([row[0] for row in rows], np.int32),
    )


def chosen_pairs(source: RatingSource) -> set[tuple[int, int]]:
    return set(zip(source.users.tolist(), source.items.tolist(), strict=True))
