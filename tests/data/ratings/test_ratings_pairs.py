"""Training pairs: negatives are uniform, never positives, and redrawn each epoch."""

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.data.ratings.step_batches import NegativeItems, pair_chunks
from tests.support.choices import chosen_pairs, make_choices

_SEED = 11


def _epoch(source, number, seed=_SEED, k=4, **settings):
    size = source.size * (1 + k)
    pairs = pair_chunks(source, num_negatives=k, global_batch_size=size, seed=seed, **settings)
    features, labels = pairs.batch_at(tf.constant(number, tf.int64))
    return features["user"].numpy(), features["item"].numpy(), labels.numpy()


def test_unchosen_maps_each_rank_to_its_item():
    source = make_choices(40, 23)
    unchosen = NegativeItems(source.users, source.items, source.num_users, source.num_items)
    chosen = chosen_pairs(source)
    for user in range(source.num_users):
        expected = [i for i in range(source.num_items) if (user, i) not in chosen]
        users = tf.fill([len(expected)], user)
        assert unchosen.count(users).numpy().tolist() == [len(expected)] * len(expected)
        ranks = tf.range(len(expected), dtype=tf.int64)
        assert unchosen(users, ranks).numpy().tolist() == expected


def test_unchosen_ranks_do_not_overflow_32_bits():
    users, items = np.array([0, 69_999, 69_999]), np.array([5, 0, 69_998])
    unchosen = NegativeItems(users, items, 70_000, 70_000)
    requesting = tf.constant([0, 0, 69_999, 69_999, 69_998])
    ranks = tf.constant([4, 5, 0, 69_997, 69_999], tf.int64)
    assert unchosen(requesting, ranks).numpy().tolist() == [4, 6, 1, 69_999, 69_999]


@pytest.mark.parametrize("shuffle", [False, True])
def test_epoch_has_each_positive_once_and_k_negatives_for_each(shuffle):
    source = make_choices()
    chosen = chosen_pairs(source)
    for epoch in range(3):
        users, items, labels = _epoch(source, epoch, shuffle=shuffle)
        pairs = list(zip(users.tolist(), items.tolist(), strict=True))
        positives = [pair for pair, label in zip(pairs, labels, strict=True) if label == 1]
        negatives = [pair for pair, label in zip(pairs, labels, strict=True) if label == 0]
        assert sorted(positives) == sorted(chosen)
        assert not chosen & set(negatives)
        assert all(0 <= item < source.num_items for _, item in negatives)
        counts = np.bincount([user for user, _ in negatives])
        np.testing.assert_array_equal(counts, 4 * np.diff(source.starts))
        assert (positives == sorted(chosen)) is not shuffle


def test_negatives_are_uniform_over_unchosen_items():
    source, epochs = make_choices(5, 9), 2000
    size = epochs * source.size * 5
    pairs = pair_chunks(source, num_negatives=4, global_batch_size=size, seed=_SEED)
    features, labels = pairs.batch_at(tf.constant(0, tf.int64))
    drawn = labels.numpy() == 0
    counts = np.zeros((5, 9))
    np.add.at(counts, (features["user"].numpy()[drawn], features["item"].numpy()[drawn]), 1)
    statistic, freedom = 0.0, 0
    for user in range(5):
        free = [i for i in range(9) if (user, i) not in chosen_pairs(source)]
        # The held-out item is among them, because training does not see it.
        assert source.held_out[user] in free
        expected = counts[user].sum() / len(free)
        assert expected > 500
        statistic += ((counts[user, free] - expected) ** 2 / expected).sum()
        freedom += len(free) - 1
    # Chi-square: mean `freedom`, deviation sqrt(2 · freedom).
    assert abs(statistic - freedom) < 3 * np.sqrt(2 * freedom)
