"""Keyed random numbers and orders: uniform, uncorrelated, and equal in NumPy and TensorFlow."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.data.order.epochs import ShuffledOrder
from orbit_runner.data.order.keyed_random import mix, random_bits, random_uniform_int
from orbit_runner.data.order.permutation import SegmentPermutation, invert, permute
from orbit_runner.data.order.tf_arrays import TENSORFLOW

_SIZES = [1, 2, 3, 5, 16, 17, 97, 1797, 50_000, 65_536]


def _epoch(size, epoch, seed=7):
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


def _is_even(order):
    return np.linalg.det(np.eye(len(order))[order]) > 0


@pytest.mark.parametrize("size", [9, 49])
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


_SEEDS = [0, 17, 2**32 - 1, 2**63 + 5, -3]
_SEGMENTS = np.array([3, 1, 0, 250, 16, 17, 2, 99])


def _hashed(seed, count):
    return random_bits(seed, np.arange(count), 5, "order")


@pytest.mark.parametrize("seed", _SEEDS)
def test_random_bits_and_integers_match_tensorflow(seed):
    ids, epochs = np.arange(300), np.arange(300) % 7 * 10**9

    bits = random_bits(seed, ids, epochs, "order")
    numbers = random_uniform_int(seed, ids, epochs, "order", 162)

    tensors = tf.constant(ids), tf.constant(epochs)
    np.testing.assert_array_equal(bits, random_bits(seed, *tensors, "order"))
    expected = random_uniform_int(seed, *tensors, "order", 162)
    np.testing.assert_array_equal(numbers, expected)


@pytest.mark.parametrize("size", _SIZES)
@pytest.mark.parametrize("seed", [17, -3])
def test_permutation_matches_tensorflow_and_is_inverted(size, seed):
    places = np.unique(np.random.default_rng(seed % 97).integers(0, size, 500))
    keys = _hashed(seed, len(places))

    values = permute(places, size, keys)

    expected = permute(tf.constant(places), size, tf.constant(keys))
    np.testing.assert_array_equal(values, expected)
    np.testing.assert_array_equal(invert(values, size, keys), places)


@pytest.mark.parametrize("seed", _SEEDS)
def test_permutation_of_segments_matches_tensorflow_and_is_inverted(seed):
    segments = np.repeat(np.arange(len(_SEGMENTS)), _SEGMENTS)
    places = np.concatenate([np.arange(size) for size in _SEGMENTS])
    keys = _hashed(seed, len(_SEGMENTS))[segments]

    permutation = SegmentPermutation(_SEGMENTS)
    values = permutation(places, segments, keys)

    tensors = (tf.constant(column) for column in (places, segments, keys))
    np.testing.assert_array_equal(values, SegmentPermutation(_SEGMENTS, TENSORFLOW)(*tensors))
    np.testing.assert_array_equal(permutation.invert(values, segments, keys), places)


_MASK = 2**64 - 1


def _mix_of_integers(value):
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ value >> 27) * 0x94D049BB133111EB) & _MASK
    return value ^ value >> 31


def _keys(size):
    return tf.range(size, dtype=tf.int64), tf.zeros([size], tf.int64)


def test_mix_matches_splitmix64():
    # The first outputs of the reference implementation of SplitMix64 from state 0.
    states = np.arange(1, 4, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    np.testing.assert_array_equal(mix(tf.constant(states)), np.array(expected, np.uint64))


@pytest.mark.parametrize("seed", [0, 17, -1, 2**63, 2**64 - 1])
def test_random_bits_match_python_integer_arithmetic(seed):
    ids, epochs = [0, 1, 2**40, 5], [0, 3, 2, 2**33]
    got = random_bits(seed, tf.constant(ids, tf.int64), tf.constant(epochs, tf.int64), "flip")
    for bits, number, epoch in zip(got.numpy(), ids, epochs, strict=True):
        state = seed & _MASK
        for part in (int.from_bytes(b"flip", "big"), epoch, number):
            state = _mix_of_integers(((state ^ part) + 0x9E3779B97F4A7C15) & _MASK)
        assert bits == state


@pytest.mark.parametrize("maxval", [1, 2, 81, 162, 1000])
def test_random_integers_are_uniform(maxval):
    size = 200_000
    drawn = random_uniform_int(3, *_keys(size), "a", maxval).numpy()
    counts = np.bincount(drawn, minlength=maxval)
    expected = size / maxval
    assert len(counts) == maxval
    # Chi-squared has a mean of maxval - 1 and a standard deviation of sqrt(2·(maxval - 1)).
    surplus = ((counts - expected) ** 2 / expected).sum() - (maxval - 1)
    assert abs(surplus) <= 5 * np.sqrt(2 * (maxval - 1))


@pytest.mark.parametrize("what", ["seed", "epoch", "purpose", "id"])
def test_draws_of_neighboring_keys_are_uncorrelated(what):
    ids, zeros = _keys(100_000)
    first = random_uniform_int(3, ids, zeros, "a", 2**31).numpy()
    second = {
        "seed": lambda: random_uniform_int(4, ids, zeros, "a", 2**31),
        "epoch": lambda: random_uniform_int(3, ids, zeros + 1, "a", 2**31),
        "purpose": lambda: random_uniform_int(3, ids, zeros, "b", 2**31),
        "id": lambda: random_uniform_int(3, ids + 1, zeros, "a", 2**31),
    }[what]().numpy()
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.016
