"""Keyed permutations of 0 to n - 1 that can be evaluated at any place, without a table.

A permutation is a Feistel network over pairs (left below a, right below b) whose product a·b is at
least n and close to it, with cycle walking until the value is below n (Black and Rogaway, Ciphers
with Arbitrary Finite Domains, CT-RSA 2002, sections 4 and 5).
`tf.random.experimental.index_shuffle` would be shorter, but its four rounds leave successive epochs
correlated, and for small n its domain is far too large.

Each round adds, modulo one factor, a number that depends on the other half:

    left, right ─► left + f(right) mod a ─► right + f(left) mod b ─► … ─► left · b + right

So the inverse subtracts the same numbers in the opposite order. Where the permutation walks a cycle
forward until it returns to the numbers below n, the inverse walks it backward.

All functions take NumPy arrays or tensors, and return the same. `keys`, uint64, select the
permutation at each place, and must already be hashed.
"""

from __future__ import annotations

import math

import numpy as np

from orbit_runner.data.order.arrays import NUMPY, Array, Arrays, Network, namespace_of
from orbit_runner.data.order.keyed_random import GOLDEN, mix, scale

_ROUNDS = 8
_ROUND_STEP = np.uint64(GOLDEN)


def permute(places: Array, size: int, keys: Array) -> Array:
    """Returns the values of a permutation at some places: int64, from 0 to `size` - 1.

    `places`, int64, from 0 to `size` - 1, and `keys` broadcast against each other.
    """
    return _apply(_network, places, size, keys)


def invert(values: Array, size: int, keys: Array) -> Array:
    """Returns the places at which `permute` has these values: int64, from 0 to `size` - 1."""
    return _apply(_inverse_network, values, size, keys)


def walk_cycles(places: Array, limits: Array, lefts: Array, rights: Array, keys: Array) -> Array:
    """Returns the values of permutations whose sizes may differ from place to place: int64.

    `places` is uint64 of any shape, and the other arguments are uint64 that broadcast to it:
    `limits` are the sizes; `lefts` and `rights` are the factors of the domain, whose product must
    not be below the limit. A place that is not below its limit is returned unchanged.
    """
    return namespace_of(places).walk_cycles(_network, places, limits, lefts, rights, keys)


class SegmentPermutation:
    """Permutes the places within segments of different sizes, like `permute` for a single size.

    `sizes`, int64 [k], are the numbers of places of the segments. `xp` are the functions for the
    arrays that are permuted.
    """

    def __init__(self, sizes: np.ndarray, xp: Arrays = NUMPY) -> None:
        columns = sizes, *_segment_factors(sizes)
        self._columns = [xp.store(column.astype(np.uint64)) for column in columns]
        self._xp = xp

    def __call__(self, places: Array, segments: Array, keys: Array) -> Array:
        """Returns the permuted places: int64, one to one within each segment.

        `places`, int64, count from 0 in each segment; `segments`, int64, are the segments they are
        in. `keys` must be the same for all places of a segment.
        """
        return self._apply(_network, places, segments, keys)

    def invert(self, values: Array, segments: Array, keys: Array) -> Array:
        """Returns the places that are permuted to these values: int64."""
        return self._apply(_inverse_network, values, segments, keys)

    def _apply(self, network: Network, values: Array, segments: Array, keys: Array) -> Array:
        xp = self._xp
        sizes, lefts, rights = (xp.take(column, segments) for column in self._columns)
        return xp.walk_cycles(network, xp.uint64(values), sizes, lefts, rights, keys)


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


def _segment_factors(sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns two numbers per segment whose product is not below its size: int64 [k] each."""
    roots = np.ceil(np.sqrt(np.maximum(sizes, 1))).astype(np.int64)
    # If the product is odd, each round is an even permutation, so no odd one can occur.
    lefts = roots + roots % 2
    return lefts, np.maximum(1, -(-sizes // lefts))


def _apply(network: Network, values: Array, size: int, keys: Array) -> Array:
    xp = namespace_of(values, keys)
    left, right = factors(size)
    values = xp.uint64(values)
    lefts = xp.uint64(left)
    rights = xp.uint64(right)
    if left * right == size:
        return xp.int64(network(values, lefts, rights, keys))
    return xp.walk_cycles(network, values, xp.uint64(size), lefts, rights, keys)


def _network(values: Array, lefts: Array, rights: Array, keys: Array) -> Array:
    xp = namespace_of(values)
    left = values // rights
    right = values - left * rights

    def two_rounds(number: Array, left: Array, right: Array) -> tuple[Array, Array]:
        key = keys + number * _ROUND_STEP
        left = _add_modulo(left, mix(xp.bitwise_xor(right, key)), lefts)
        right = _add_modulo(right, mix(xp.bitwise_xor(left, key + _ROUND_STEP)), rights)
        return left, right

    left, right = xp.repeat(two_rounds, _ROUNDS, left, right)
    return left * rights + right


def _inverse_network(values: Array, lefts: Array, rights: Array, keys: Array) -> Array:
    xp = namespace_of(values)
    left = values // rights
    right = values - left * rights

    def two_rounds(number: Array, left: Array, right: Array) -> tuple[Array, Array]:
        # Not a loop that counts down: XLA of TensorFlow 2.20 crashes if it is unsigned.
        key = keys + (xp.uint64(_ROUNDS - 2) - number) * _ROUND_STEP
        right = _subtract_modulo(right, mix(xp.bitwise_xor(left, key + _ROUND_STEP)), rights)
        left = _subtract_modulo(left, mix(xp.bitwise_xor(right, key)), lefts)
        return left, right

    left, right = xp.repeat(two_rounds, _ROUNDS, left, right)
    return left * rights + right


def _add_modulo(values: Array, bits: Array, modulus: Array) -> Array:
    total = values + scale(bits, modulus)
    # A remainder costs several times as much as a comparison.
    return namespace_of(total).where(total >= modulus, total - modulus, total)


def _subtract_modulo(values: Array, bits: Array, modulus: Array) -> Array:
    total = values + (modulus - scale(bits, modulus))
    return namespace_of(total).where(total >= modulus, total - modulus, total)
