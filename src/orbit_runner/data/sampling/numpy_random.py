"""The random numbers of `keyed_random`, computed by NumPy. Does not import TensorFlow."""

from __future__ import annotations

import numpy as np

GOLDEN = 0x9E3779B97F4A7C15
MULTIPLIERS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


def mix(values: np.ndarray) -> np.ndarray:
    """Returns the same as `keyed_random.mix`: uint64, the shape of `values`."""
    for shift, multiplier in MULTIPLIERS:
        values = (values ^ (values >> np.uint64(shift))) * np.uint64(multiplier)
    return values ^ (values >> np.uint64(31))


def random_bits(
    seed: int, ids: np.ndarray | int, epochs: np.ndarray | int, salt: int
) -> np.ndarray:
    """Returns the same as `keyed_random.random_bits`: uint64, the shape of ids and epochs.

    `ids` and `epochs` are integers that broadcast against each other.
    """
    # Arrays, because NumPy warns if a scalar overflows.
    state = np.array([seed % 2**64], np.uint64)
    for part in (np.uint64(salt), _uint64(epochs), _uint64(ids)):
        state = mix((state ^ part) + np.uint64(GOLDEN))
    return state.reshape(np.broadcast_shapes(np.shape(ids), np.shape(epochs)))


def random_uniform_int(
    seed: int, ids: np.ndarray | int, epochs: np.ndarray | int, salt: int, maxval: int
) -> np.ndarray:
    """Returns the same as `keyed_random.random_uniform_int`: int64, 0 to `maxval` - 1."""
    return scale(random_bits(seed, ids, epochs, salt), maxval).astype(np.int64)


def scale(bits: np.ndarray, maxval: int | np.ndarray) -> np.ndarray:
    """Returns the same as `keyed_random.scale`: uint64, 0 to `maxval` - 1."""
    return ((bits >> np.uint64(32)) * _uint64(maxval)) >> np.uint64(32)


def _uint64(values: np.ndarray | int) -> np.ndarray:
    return np.atleast_1d(np.asarray(values)).astype(np.uint64)
