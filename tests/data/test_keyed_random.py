from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.data.order.keyed_random import mix, random_bits, random_uniform_int

_MASK = 2**64 - 1


def _mix_of_integers(value: int) -> int:
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ value >> 27) * 0x94D049BB133111EB) & _MASK
    return value ^ value >> 31


def _keys(size: int) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.range(size, dtype=tf.int64), tf.zeros([size], tf.int64)


def test_mix_matches_splitmix64():
    # The first outputs of the reference implementation of SplitMix64 from state 0.
    states = np.arange(1, 4, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    np.testing.assert_array_equal(mix(tf.constant(states)), np.array(expected, np.uint64))


@pytest.mark.parametrize("seed", [0, 17, -1, 2**63, 2**64 - 1])
def test_random_bits_match_python_integer_arithmetic(seed):
    ids, epochs, salt = [0, 1, 2**40, 5], [0, 3, 2, 2**33], 9
    got = random_bits(seed, tf.constant(ids, tf.int64), tf.constant(epochs, tf.int64), salt)
    for bits, number, epoch in zip(got.numpy(), ids, epochs, strict=True):
        state = seed & _MASK
        for part in (salt, epoch, number):
            state = _mix_of_integers(((state ^ part) + 0x9E3779B97F4A7C15) & _MASK)
        assert bits == state


@pytest.mark.parametrize("maxval", [1, 2, 81, 162, 1000])
def test_random_integers_are_uniform(maxval):
    size = 200_000
    drawn = random_uniform_int(3, *_keys(size), 7, maxval).numpy()
    counts = np.bincount(drawn, minlength=maxval)
    expected = size / maxval
    assert len(counts) == maxval
    # Chi-squared has a mean of maxval - 1 and a standard deviation of sqrt(2·(maxval - 1)).
    surplus = ((counts - expected) ** 2 / expected).sum() - (maxval - 1)
    assert abs(surplus) <= 5 * np.sqrt(2 * (maxval - 1))


@pytest.mark.parametrize("what", ["seed", "epoch", "salt", "id"])
def test_draws_of_neighboring_keys_are_uncorrelated(what):
    ids, zeros = _keys(100_000)
    first = random_uniform_int(3, ids, zeros, 7, 2**31).numpy()
    second = {
        "seed": lambda: random_uniform_int(4, ids, zeros, 7, 2**31),
        "epoch": lambda: random_uniform_int(3, ids, zeros + 1, 7, 2**31),
        "salt": lambda: random_uniform_int(3, ids, zeros, 8, 2**31),
        "id": lambda: random_uniform_int(3, ids + 1, zeros, 7, 2**31),
    }[what]().numpy()
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.016
