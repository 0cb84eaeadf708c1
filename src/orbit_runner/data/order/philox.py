"""TensorFlow's stateless random numbers, computed by NumPy. Does not import TensorFlow.

The generator is Philox 4×32 with ten rounds (Salmon et al., Parallel Random Numbers: As Easy as 1,
2, 3, SC 2011). TensorFlow derives its key and the upper half of its counter from the two seeds of
an op with one call of the same generator.
"""

from __future__ import annotations

import numpy as np

_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_KEY_STEPS = 0x9E3779B9, 0xBB67AE85
_ROUNDS = 10
_SEED_KEY = 0x3EC8F720, 0x02461E29
_LOW = np.uint64(0xFFFFFFFF)
_WORD = np.uint64(32)
# Of a float32: the bits of the fraction, and the exponent of 1.
_FRACTION, _ONE = np.uint32(0x7FFFFF), np.uint32(0x3F800000)


def uniforms(bits: np.ndarray, count: int, offset: int = 0) -> np.ndarray:
    """Returns `tf.random.stateless_uniform([count], seed)` per row: float32 [b, count], in [0, 1).

    `bits` is uint64 [b]; the seed is `tf.bitcast(bits, tf.int32) + offset`.
    """
    return to_floats(random_words(bits, count, offset))


def random_words(bits: np.ndarray, count: int, offset: int = 0) -> np.ndarray:
    """Returns the 32-bit words from which TensorFlow makes random numbers: uint32 [b, count]."""
    seeds = np.ascontiguousarray(bits).view(np.int32).reshape(-1, 2) + np.int32(offset)
    # TensorFlow extends the signs of the seeds.
    counter = np.stack([_split_words(seeds[:, 0]), _split_words(seeds[:, 1])], 1).reshape(-1, 4)
    mixed = _philox(counter, np.array([_SEED_KEY], np.uint64))
    calls = -(-count // 4)
    counters = np.zeros([len(seeds), calls, 4], np.uint64)
    counters[:, :, 0] = np.arange(calls)
    counters[:, :, 2:] = mixed[:, np.newaxis, 2:]
    keys = np.repeat(mixed[:, :2], calls, axis=0)
    words = _philox(counters.reshape(-1, 4), keys).reshape(len(seeds), -1)
    return words[:, :count].astype(np.uint32)


def words_of_call(key: int, low: int, high: int) -> np.ndarray:
    """Returns the four words of the generator for a key and a counter, uint32 [4].

    `key` has 64 bits, and `low` and `high` are the lower and the upper 64 bits of the counter.
    """
    parts = [part >> shift & 0xFFFFFFFF for part in (low, high, key) for shift in (0, 32)]
    words = np.array(parts, np.uint64)
    return _philox(words[np.newaxis, :4], words[np.newaxis, 4:])[0].astype(np.uint32)


def to_floats(words: np.ndarray) -> np.ndarray:
    """Returns random words, uint32, as float32 in [0, 1), as TensorFlow does."""
    return (words & _FRACTION | _ONE).view(np.float32) - np.float32(1)


def _split_words(seeds: np.ndarray) -> np.ndarray:
    """Returns the lower and the upper 32 bits of integers [b]: uint64 [b, 2]."""
    wide = seeds.astype(np.int64).astype(np.uint64)
    return np.stack([wide & _LOW, wide >> _WORD], 1)


def _philox(counters: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Returns the generator's four words per counter: uint64 [b, 4], each below 2^32."""
    c0, c1, c2, c3 = counters.T
    for number in range(_ROUNDS):
        k0, k1 = (
            (key + np.uint64(number * step)) & _LOW
            for key, step in zip(keys.T, _KEY_STEPS, strict=True)
        )
        first, second = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            (second >> _WORD) ^ c1 ^ k0, second & _LOW, (first >> _WORD) ^ c3 ^ k1, first & _LOW
        )  # fmt: skip
    return np.stack([c0, c1, c2, c3], 1)
