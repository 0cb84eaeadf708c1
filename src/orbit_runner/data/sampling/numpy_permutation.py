"""The permutations of `permutation` and their inverses, by NumPy. Does not import TensorFlow.

Each round of the Feistel network adds, modulo one factor, a number that depends on the other half.
So the inverse subtracts the same numbers in the opposite order. Where the permutation walks a cycle
forward until it returns to the numbers below its size, the inverse walks it backward.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from orbit_runner.data.sampling.numpy_random import mix, scale

ROUNDS = 8
ROUND_STEP = 0x9E3779B97F4A7C15

_Network = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def permute(places: np.ndarray, size: int, keys: np.ndarray) -> np.ndarray:
    """Returns the same as `permutation.permute`: int64, from 0 to `size` - 1.

    `places`, integers from 0 to `size` - 1, and `keys`, uint64, broadcast against each other.
    """
    return _walk_cycles(_network, places, np.int64(size), *factors(size), keys)


def invert(values: np.ndarray, size: int, keys: np.ndarray) -> np.ndarray:
    """Returns the places at which `permute` has these values: int64, from 0 to `size` - 1."""
    return _walk_cycles(_inverse_network, values, np.int64(size), *factors(size), keys)


def invert_segments(
    values: np.ndarray, sizes: np.ndarray, segments: np.ndarray, keys: np.ndarray
) -> np.ndarray:
    """Returns the places at which a `SegmentPermutation` of `sizes` has these values: int64.

    `values` and `segments`, integers, and `keys`, uint64, broadcast against each other.
    """
    return _walk_cycles(_inverse_network, values, *_segment_columns(sizes, segments), keys)


def permute_segments(
    places: np.ndarray, sizes: np.ndarray, segments: np.ndarray, keys: np.ndarray
) -> np.ndarray:
    """Returns the same as a `SegmentPermutation` of `sizes`: int64."""
    return _walk_cycles(_network, places, *_segment_columns(sizes, segments), keys)


def factors(size: int) -> tuple[int, int]:
    """Returns two similar numbers whose product is at least `size` and close to it."""
    if size == 1:
        return 1, 1
    root = math.isqrt(size - 1) + 1
    # Any pair of similar factors mixes well. The smallest product needs the fewest passes.
    lefts = range(max(2, -(-root // 2)), root + 1)
    pairs = [(left, -(-size // left)) for left in lefts]
    # If the product is odd, each round is an even permutation, so no odd one can occur.
    even = [pair for pair in pairs if pair[0] * pair[1] % 2 == 0]
    return min(even, key=lambda pair: (pair[0] * pair[1], -pair[0]))


def segment_factors(sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns two numbers per segment whose product is not below its size: int64 [k] each."""
    roots = np.ceil(np.sqrt(np.maximum(sizes, 1))).astype(np.int64)
    # If the product is odd, each round is an even permutation, so no odd one can occur.
    lefts = roots + roots % 2
    return lefts, np.maximum(1, -(-sizes // lefts))


def _segment_columns(
    sizes: np.ndarray, segments: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    chosen = sizes[segments]
    return chosen, *segment_factors(chosen)


def _walk_cycles(
    network: _Network,
    values: np.ndarray,
    limits: np.ndarray | np.int64,
    lefts: np.ndarray | int,
    rights: np.ndarray | int,
    keys: np.ndarray,
) -> np.ndarray:
    """Applies a network to each value until the result is below its limit: int64.

    A value that is not below its limit is returned unchanged.
    """
    every = np.broadcast_arrays(values, limits, lefts, rights, keys)
    shape = every[0].shape
    start, limit, left, right, key = (column.reshape(-1).astype(np.uint64) for column in every)
    found, todo = start.copy(), np.flatnonzero(start < limit)
    while len(todo):
        found[todo] = network(found[todo], left[todo], right[todo], key[todo])
        todo = todo[found[todo] >= limit[todo]]
    return found.astype(np.int64).reshape(shape)


def _network(
    values: np.ndarray, lefts: np.ndarray, rights: np.ndarray, keys: np.ndarray
) -> np.ndarray:
    left, right = values // rights, values % rights
    for number in range(0, ROUNDS, 2):
        first, second = _round_keys(keys, number)
        left = (left + scale(mix(right ^ first), lefts)) % lefts
        right = (right + scale(mix(left ^ second), rights)) % rights
    return left * rights + right


def _inverse_network(
    values: np.ndarray, lefts: np.ndarray, rights: np.ndarray, keys: np.ndarray
) -> np.ndarray:
    left, right = values // rights, values % rights
    for number in reversed(range(0, ROUNDS, 2)):
        first, second = _round_keys(keys, number)
        right = (right + rights - scale(mix(left ^ second), rights)) % rights
        left = (left + lefts - scale(mix(right ^ first), lefts)) % lefts
    return left * rights + right


def _round_keys(keys: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray]:
    steps = [np.uint64((number + more) * ROUND_STEP % 2**64) for more in (0, 1)]
    return keys + steps[0], keys + steps[1]
