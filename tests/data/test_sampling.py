from __future__ import annotations

import collections

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.data.order.epochs import ShuffledOrder

_SIZES = [1, 2, 3, 5, 16, 17, 97, 1797, 50_000, 65_536]


def _epoch(size: int, epoch: int, seed: int = 7) -> np.ndarray:
    positions = tf.range(epoch * size, (epoch + 1) * size, dtype=tf.int64)
    ids, epochs, _ = ShuffledOrder(size, seed)(positions)
    assert set(epochs.numpy()) == {epoch}
    return ids.numpy()


@pytest.mark.parametrize("size", _SIZES)
@pytest.mark.parametrize("epoch", [0, 1, 10**6])
def test_each_epoch_has_each_example_once(size, epoch):
    np.testing.assert_array_equal(np.sort(_epoch(size, epoch)), np.arange(size))


@pytest.mark.parametrize("size", [1797, 50_000, 65_536])
def test_orders_of_epochs_and_seeds_are_uncorrelated(size):
    orders = [_epoch(size, epoch) for epoch in range(4)] + [_epoch(size, 0, seed=8)]
    orders.append(np.arange(size))
    correlations = np.corrcoef(orders)[np.triu_indices(len(orders), 1)]
    assert np.abs(correlations).max() < 4.5 / np.sqrt(size)
    for order in orders[:-1]:
        assert abs(np.corrcoef(order[1:], order[:-1])[0, 1]) < 4.5 / np.sqrt(size)


@pytest.mark.parametrize("size", [3, 4, 5])
def test_all_permutations_are_about_equally_likely(size):
    epochs = 200 * np.prod(range(1, size + 1))
    positions = tf.range(epochs * size, dtype=tf.int64)
    orders = ShuffledOrder(size, 1)(positions)[0].numpy().reshape(-1, size)
    counts = collections.Counter(map(tuple, orders))
    assert len(counts) == np.prod(range(1, size + 1))
    assert 120 < min(counts.values()) <= max(counts.values()) < 280


def _is_even(order: np.ndarray) -> bool:
    return np.linalg.det(np.eye(len(order))[order]) > 0


@pytest.mark.sample(1)
@pytest.mark.parametrize("size", [3, 9, 25, 49])
def test_even_and_odd_permutations_both_occur(size):
    even = sum(_is_even(_epoch(size, epoch)) for epoch in range(40))
    assert 5 < even < 35


@pytest.mark.slow
def test_xla_gives_the_same_order():
    sample = tf.function(lambda p: ShuffledOrder(1797, 7)(p)[0], jit_compile=True)
    np.testing.assert_array_equal(sample(tf.range(1797, dtype=tf.int64)), _epoch(1797, 0))


def test_order_of_a_seed_does_not_change():
    # Another order would give each config other weights.
    assert _epoch(10, 0).tolist() == [0, 3, 5, 9, 4, 2, 1, 7, 8, 6]
    assert _epoch(10, 1).tolist() == [7, 8, 2, 0, 4, 5, 1, 9, 3, 6]
