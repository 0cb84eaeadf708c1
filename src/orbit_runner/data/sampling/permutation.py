"""A keyed permutation of 0 to n - 1 that can be evaluated at any place, without a table."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from orbit_runner.data.sampling.keyed_random import mix, scale, uint64
from orbit_runner.data.sampling.numpy_permutation import ROUND_STEP, ROUNDS, factors

# From values, lefts, rights and keys, all uint64, to the values of one pass.
_Network = Callable[[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]


def permute(places: tf.Tensor, size: int, keys: tf.Tensor) -> tf.Tensor:
    """Returns the values of a permutation at some places: int64 [b], from 0 to `size` - 1.

    `places` is int64 [b], from 0 to `size` - 1. `keys`, uint64 [b], select the permutation at each
    place, and must already be hashed.

    This is a Feistel network over pairs (left below a, right below b) whose product a·b is at least
    n and close to it, with cycle walking until the value is below n (Black and Rogaway, Ciphers
    with Arbitrary Finite Domains, CT-RSA 2002, sections 4 and 5).
    `tf.random.experimental.index_shuffle` would be shorter, but its four rounds leave successive
    epochs correlated, and for small n its domain is far too large.
    """
    return _permute(_network, places, size, keys)


def invert(values: tf.Tensor, size: int, keys: tf.Tensor) -> tf.Tensor:
    """Returns the places at which `permute` has these values: int64 [b], from 0 to `size` - 1."""
    return _permute(_inverse_network, values, size, keys)


def walk_cycles(
    places: tf.Tensor,
    limits: tf.Tensor,
    lefts: tf.Tensor,
    rights: tf.Tensor,
    keys: tf.Tensor,
    network: _Network | None = None,
) -> tf.Tensor:
    """Returns the values of permutations whose sizes may differ from place to place: int64.

    `places` is uint64 of any shape, and the other arguments are uint64 that broadcast to it:
    `limits` are the sizes; `lefts` and `rights` are the factors of the domain, whose product must
    not be below the limit; `keys` select the permutation, and must already be hashed. A place that
    is not below its limit is returned unchanged. `network` is applied until the value is below the
    limit; by default that of `permute`.
    """
    inside, step = places < limits, network or _network

    # This loop includes the first pass, and the rounds are a loop too. This keeps the graph small,
    # because it is traced at every start.
    def apply_network(x: tf.Tensor, first: tf.Tensor) -> list[tf.Tensor]:
        return [tf.where(first | (x >= limits), step(x, lefts, rights, keys), x), False]

    values, _ = tf.while_loop(
        lambda x, first: first | tf.reduce_any(inside & (x >= limits)),
        apply_network,
        [places, True],
    )
    return tf.cast(tf.where(inside, values, places), tf.int64)


def _permute(network: _Network, places: tf.Tensor, size: int, keys: tf.Tensor) -> tf.Tensor:
    left, right = factors(size)
    places, lefts, rights = tf.cast(places, tf.uint64), uint64(left), uint64(right)
    if left * right == size:
        return tf.cast(network(places, lefts, rights, keys), tf.int64)
    return walk_cycles(places, uint64(size), lefts, rights, keys, network)


def _network(values: tf.Tensor, lefts: tf.Tensor, rights: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
    left = values // rights
    right = values - left * rights

    def two_rounds(number: tf.Tensor, left: tf.Tensor, right: tf.Tensor) -> list[tf.Tensor]:
        key = keys + number * uint64(ROUND_STEP)
        left = _add_modulo(left, mix(tf.bitwise.bitwise_xor(right, key)), lefts)
        key += uint64(ROUND_STEP)
        right = _add_modulo(right, mix(tf.bitwise.bitwise_xor(left, key)), rights)
        return [number + uint64(2), left, right]

    _, left, right = tf.while_loop(
        lambda number, *_: number < uint64(ROUNDS), two_rounds, [uint64(0), left, right]
    )
    return left * rights + right


def _inverse_network(
    values: tf.Tensor, lefts: tf.Tensor, rights: tf.Tensor, keys: tf.Tensor
) -> tf.Tensor:
    left = values // rights
    right = values - left * rights

    def two_rounds(number: tf.Tensor, left: tf.Tensor, right: tf.Tensor) -> list[tf.Tensor]:
        # Not a loop that counts down: XLA of TensorFlow 2.20 crashes if it is unsigned.
        key = keys + (uint64(ROUNDS - 2) - number) * uint64(ROUND_STEP)
        second = key + uint64(ROUND_STEP)
        right = _subtract_modulo(right, mix(tf.bitwise.bitwise_xor(left, second)), rights)
        left = _subtract_modulo(left, mix(tf.bitwise.bitwise_xor(right, key)), lefts)
        return [number + uint64(2), left, right]

    _, left, right = tf.while_loop(
        lambda number, *_: number < uint64(ROUNDS), two_rounds, [uint64(0), left, right]
    )
    return left * rights + right


def _add_modulo(values: tf.Tensor, bits: tf.Tensor, modulus: tf.Tensor) -> tf.Tensor:
    total = values + scale(bits, modulus)
    # A remainder costs several times as much as a comparison.
    return tf.where(total >= modulus, total - modulus, total)


def _subtract_modulo(values: tf.Tensor, bits: tf.Tensor, modulus: tf.Tensor) -> tf.Tensor:
    total = values + (modulus - scale(bits, modulus))
    return tf.where(total >= modulus, total - modulus, total)
