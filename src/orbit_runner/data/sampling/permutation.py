"""A keyed permutation of 0 to n - 1 that gives any of its places at once, without a table."""

from __future__ import annotations

import math

import tensorflow as tf

from orbit_runner.data.sampling.keyed_random import mix, scale, uint64

_ROUNDS = 8
_ROUND_STEP = 0x9E3779B97F4A7C15


def permute(places: tf.Tensor, size: int, keys: tf.Tensor) -> tf.Tensor:
    """Reads a permutation at some places.

    A Feistel network over pairs (left below a, right below b) with a·b ≥ n just enough, walking on
    until the value is below n (Black and Rogaway, Ciphers with Arbitrary Finite Domains, CT-RSA
    2002, sections 4 and 5). `tf.random.experimental.index_shuffle` would be shorter, but its four
    rounds leave successive epochs correlated, and for small n its domain is far too large.

    Args:
        places: int64 [b], 0 to `size` - 1.
        size: n.
        keys: Which permutation to read at each place, uint64 [b], hashed beforehand.

    Returns:
        int64 [b], 0 to `size` - 1; one to one in `places` for each key.
    """
    left, right = _factors(size)
    places, lefts, rights = tf.cast(places, tf.uint64), uint64(left), uint64(right)
    if left * right == size:
        return tf.cast(_network(places, lefts, rights, keys), tf.int64)
    return walk_cycles(places, uint64(size), lefts, rights, keys)


def walk_cycles(
    places: tf.Tensor, limits: tf.Tensor, lefts: tf.Tensor, rights: tf.Tensor, keys: tf.Tensor
) -> tf.Tensor:
    """Reads permutations of sizes that may differ from place to place, walking where they differ.

    Args:
        places: uint64, any shape.
        limits: The size of each place's permutation, uint64 of a shape that broadcasts.
        lefts: A factor of the domain to walk in, uint64.
        rights: The other factor; the product is no less than the limit.
        keys: Which permutation to read at each place, uint64, hashed beforehand.

    Returns:
        int64. A place that is not below its limit stays as it is.
    """
    inside = places < limits

    # One loop also for the first pass, and one over the rounds: a graph as small as can be, since
    # tracing it is a part of every start.
    def again(x: tf.Tensor, first: tf.Tensor) -> list[tf.Tensor]:
        return [tf.where(first | (x >= limits), _network(x, lefts, rights, keys), x), False]

    values, _ = tf.while_loop(
        lambda x, first: first | tf.reduce_any(inside & (x >= limits)), again, [places, True]
    )
    return tf.cast(tf.where(inside, values, places), tf.int64)


def _network(values: tf.Tensor, lefts: tf.Tensor, rights: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
    left = values // rights
    right = values - left * rights

    def two_rounds(number: tf.Tensor, left: tf.Tensor, right: tf.Tensor) -> list[tf.Tensor]:
        key = keys + number * uint64(_ROUND_STEP)
        left = _add(left, mix(tf.bitwise.bitwise_xor(right, key)), lefts)
        key += uint64(_ROUND_STEP)
        right = _add(right, mix(tf.bitwise.bitwise_xor(left, key)), rights)
        return [number + uint64(2), left, right]

    _, left, right = tf.while_loop(
        lambda number, *_: number < uint64(_ROUNDS), two_rounds, [uint64(0), left, right]
    )
    return left * rights + right


def _add(values: tf.Tensor, bits: tf.Tensor, modulus: tf.Tensor) -> tf.Tensor:
    total = values + scale(bits, modulus)
    # A remainder costs several times as much as a comparison.
    return tf.where(total >= modulus, total - modulus, total)


def _factors(size: int) -> tuple[int, int]:
    if size == 1:
        return 1, 1
    root = math.isqrt(size - 1) + 1
    # Any pair not too lopsided mixes well; the smallest product walks least.
    lefts = range(max(2, -(-root // 2)), root + 1)
    pairs = [(left, -(-size // left)) for left in lefts]
    # An odd product would leave out the odd permutations, each round being an even one.
    even = [pair for pair in pairs if pair[0] * pair[1] % 2 == 0]
    return min(even, key=lambda pair: (pair[0] * pair[1], -pair[0]))
