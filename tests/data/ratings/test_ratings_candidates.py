"""Ranking candidates: distinct items that the user did not choose, the same in each evaluation."""

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.data.ratings.step_batches import Candidates, draw_distinct
from tests.support.choices import batches_of, chosen_pairs, eval_users, make_choices


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


def _evaluate(batch=8, replicas=1, pipelines=1, num_negatives=5, **settings):
    def make(context):
        return eval_users(
            make_choices(21),
            num_negatives=num_negatives,
            global_batch_size=batch,
            seed=3,
            input_context=context,
            **settings,
        )

    steps = 21 // batch if settings.get("drop_remainder") else -(-21 // batch)
    return batches_of(make, steps, replicas, pipelines)


@pytest.mark.parametrize(
    ("num_negatives", "batch", "replicas", "pipelines"),
    [(0, 8, 2, 1), (5, 4, 4, 2), (5, 24, 1, 1)],
)
def test_each_user_is_evaluated_once_in_order(num_negatives, batch, replicas, pipelines):
    expected_items, expected_there = _candidates(make_choices(21), num_negatives)
    batches = _evaluate(batch, replicas, pipelines, num_negatives)
    users, items, there, weights = (
        np.concatenate(parts)
        for parts in zip(*((f["user"], f["item"], t, w) for f, t, w in batches), strict=True)
    )
    assert set(weights) <= {0.0, 1.0}
    real = weights == 1
    np.testing.assert_array_equal(users[real], np.arange(21))
    np.testing.assert_array_equal(items[real], expected_items)
    np.testing.assert_array_equal(there[real], expected_there)
    assert not users[~real].any()
