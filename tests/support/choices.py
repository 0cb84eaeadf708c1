"""User-item interactions for the tests of `data/ratings/`."""

from __future__ import annotations

from typing import Any

import numpy as np

from orbit_runner.data.chunks import endless_dataset, one_pass_dataset
from orbit_runner.data.options import PipelineOptions
from orbit_runner.data.order.sharding import replica_slices
from orbit_runner.data.ratings.interactions import RatingSource
from orbit_runner.data.ratings.step_batches import pair_chunks, user_chunks
from tests.support.batches import global_batches


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


def batches_of(make, steps, replicas=1, pipelines=1):
    return global_batches(make, replicas, pipelines, steps)


def train_pairs(
    source: RatingSource, *, input_context: Any = None, start_step: Any = 0, **settings: Any
) -> Any:
    """Returns the dataset of training batches."""
    slices = replica_slices(settings["global_batch_size"], input_context)
    chunks = pair_chunks(source, replicas=slices.replicas_in_sync, **settings)
    return endless_dataset(chunks, slices, start_step, PipelineOptions())


def eval_users(source: RatingSource, *, input_context: Any = None, **settings: Any) -> Any:
    """Returns the dataset of evaluation batches."""
    slices = replica_slices(settings["global_batch_size"], input_context)
    chunks = user_chunks(source, replicas=slices.replicas_in_sync, **settings)
    return one_pass_dataset(chunks, slices, PipelineOptions(), cache=False)
