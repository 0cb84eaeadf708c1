"""Ranking candidates: distinct items that the user did not choose, the same in each evaluation."""

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.data.ratings.step_batches import Candidates, draw_distinct
from tests.support.choices import chosen_pairs, make_choices


@pytest.mark.parametrize("count", [1, 5, 40])
def test_distinct_draws_contain_no_duplicates(count):
    sizes = tf.constant([1, 2, 3, 4, 5, 9, 16, 17, 39, 40, 41, 1000], tf.int64)
    keys = tf.cast(tf.range(len(sizes)), tf.uint64) * 7919
    draws = draw_distinct(sizes, keys, count).numpy()
    for size, row in zip(sizes.numpy(), draws, strict=True):
        below = row[row < size]
        assert len(below) == min(size, count) == len(set(below))
        assert (row[:size] < size).all()


def _candidates(source, num_negatives, seed=3):
    listed = Candidates(source, num_negatives=num_negatives, seed=seed)
    items, there = listed(tf.range(source.num_users, dtype=tf.int64))
    assert items.shape[1] == listed.width
    return items.numpy(), there.numpy()


@pytest.mark.parametrize("num_negatives", [0, 1, 5, 16])
def test_candidates_are_distinct_unchosen_items(num_negatives):
    source = make_choices(30)
    items, there = _candidates(source, num_negatives)
    np.testing.assert_array_equal(items[:, 0], source.held_out)
    assert there[:, 0].all()
    for user in range(source.num_users):
        mine = {item for owner, item in chosen_pairs(source) if owner == user}
        free = set(range(source.num_items)) - mine - {int(source.held_out[user])}
        listed = items[user, 1:][there[user, 1:]].tolist()
        assert len(set(listed)) == len(listed)
        assert set(listed) <= free
        assert len(listed) == min(len(free), num_negatives or len(free))
    assert items.min() >= 0
    assert items.max() < source.num_items


def test_candidates_depend_only_on_the_seed():
    source = make_choices(30, 200)
    first = _candidates(source, 20)[0]
    np.testing.assert_array_equal(first, _candidates(source, 20)[0])
    assert np.mean(first[:, 1:] == _candidates(source, 20, seed=4)[0][:, 1:]) < 0.05
