"""NumPy computes the same orders and random numbers as TensorFlow, and inverts the orders."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.data.order.keyed_random import random_bits, random_uniform_int
from orbit_runner.data.order.permutation import SegmentPermutation, invert, permute
from orbit_runner.data.order.tf_arrays import TENSORFLOW

_SIZES = [1, 2, 3, 5, 16, 17, 97, 1797, 50_000, 65_536]
_SEEDS = [0, 17, 2**32 - 1, 2**63 + 5, -3]
_SEGMENTS = np.array([3, 1, 0, 250, 16, 17, 2, 99])


def _keys(seed: int, count: int) -> np.ndarray:
    return random_bits(seed, np.arange(count), 5, 99)


@pytest.mark.parametrize("seed", _SEEDS)
def test_random_bits_and_integers_match_tensorflow(seed: int) -> None:
    ids, epochs = np.arange(300), np.arange(300) % 7 * 10**9

    bits = random_bits(seed, ids, epochs, 12345)
    numbers = random_uniform_int(seed, ids, epochs, 12345, 162)

    tensors = tf.constant(ids), tf.constant(epochs)
    np.testing.assert_array_equal(bits, random_bits(seed, *tensors, 12345))
    expected = random_uniform_int(seed, *tensors, 12345, 162)
    np.testing.assert_array_equal(numbers, expected)


@pytest.mark.sample(4)
@pytest.mark.parametrize("size", _SIZES)
@pytest.mark.parametrize("seed", _SEEDS)
def test_permutation_matches_tensorflow_and_is_inverted(size: int, seed: int) -> None:
    places = np.unique(np.random.default_rng(seed % 97).integers(0, size, 500))
    keys = _keys(seed, len(places))

    values = permute(places, size, keys)

    expected = permute(tf.constant(places), size, tf.constant(keys))
    np.testing.assert_array_equal(values, expected)
    np.testing.assert_array_equal(invert(values, size, keys), places)


@pytest.mark.parametrize("seed", _SEEDS)
def test_permutation_of_segments_matches_tensorflow_and_is_inverted(seed: int) -> None:
    segments = np.repeat(np.arange(len(_SEGMENTS)), _SEGMENTS)
    places = np.concatenate([np.arange(size) for size in _SEGMENTS])
    keys = _keys(seed, len(_SEGMENTS))[segments]

    permutation = SegmentPermutation(_SEGMENTS)
    values = permutation(places, segments, keys)

    tensors = (tf.constant(column) for column in (places, segments, keys))
    np.testing.assert_array_equal(values, SegmentPermutation(_SEGMENTS, TENSORFLOW)(*tensors))
    np.testing.assert_array_equal(permutation.invert(values, segments, keys), places)
