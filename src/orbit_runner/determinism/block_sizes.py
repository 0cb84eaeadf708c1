"""Fixes the sizes of the blocks in which Eigen multiplies matrices.

Eigen sums the terms of a product block by block. The length of a block depends on the size of the
L1 data cache: 400 terms with 32 KiB, 608 with 48 KiB. Eigen asks the processor once, and keeps the
sizes of the three caches in a variable that TensorFlow does not export. `fix_block_sizes` finds the
variable by its value, which is what Eigen's exported function for TensorFlow Lite returns, and
checks by a product that it was the right variable.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf

from orbit_runner.determinism.portable import SETTING
from orbit_runner.errors import SettingError

# The data caches of all processors with AVX2 have at least this size.
L1_BYTES = 32 * 1024
_LIBRARY = "libtensorflow_cc.so.2"
_QUERY = "_ZN14EigenForTFLite8internal15queryCacheSizesERiS1_S1_"
_DEFAULTS = (L1_BYTES, 256 * 1024, 2 * 1024 * 1024)
# More terms than in two blocks, and fewer than in the blocks of a large cache.
_TERMS = 601


@functools.cache
def fix_block_sizes() -> None:
    """Makes this process multiply as processors with an L1 data cache of 32 KiB do.

    Must be called after the threads and devices of TensorFlow are set, because it multiplies.
    Raises `SettingError` if the sizes cannot be set.
    """
    if _is_fixed():  # Also makes Eigen read the sizes of the caches.
        return
    sizes = cache_sizes()
    # Parts of TensorFlow have copies of the variable.
    places = [*_find_addresses(struct.pack("=3q", *sizes))]
    _write_size(places, L1_BYTES)
    if _is_fixed():
        return
    _write_size(places, sizes[0])
    raise SettingError(
        SETTING,
        f"got 'portable', but this processor's L1 data cache has {sizes[0] // 1024} KiB, and this "
        "version of TensorFlow does not let the size of Eigen's blocks be set\n"
        "allowed here: 'native'",
        code="not-supported",
    )


def _write_size(places: Iterable[int], size: int) -> None:
    for place in places:
        ctypes.c_int64.from_address(place).value = size


def cache_sizes() -> tuple[int, ...]:
    """Returns the sizes of the L1, L2 and L3 caches in bytes, as Eigen sees them."""
    try:
        query = getattr(ctypes.CDLL(_LIBRARY), _QUERY)
    except (OSError, AttributeError):
        return _DEFAULTS
    sizes = [ctypes.c_int() for _ in _DEFAULTS]
    query(*map(ctypes.byref, sizes))
    return tuple(
        size.value if size.value > 0 else default
        for size, default in zip(sizes, _DEFAULTS, strict=True)
    )


def _is_fixed() -> bool:
    """Returns whether a product sums its terms in the blocks of an L1 data cache of 32 KiB."""
    draw = np.random.RandomState(0)
    left, right = (draw.randint(-(2**15), 2**15, (64, _TERMS)) / 2.0**15 for _ in range(2))
    with tf.device("/CPU:0"):
        product = tf.linalg.matmul(
            tf.constant(left, tf.float32), tf.constant(right.T, tf.float32)
        ).numpy()
    return bool((product == _expected_product(left, right)).all())


def _expected_product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Returns the product, with the terms of each of its blocks added in turn."""
    left, right = left.astype(np.float32), right.astype(np.float32)
    product = np.zeros((len(left), len(right)), np.float32)
    for begin, end in itertools.pairwise(_block_bounds(_TERMS)):
        block = np.zeros_like(product)
        for term in range(begin, end):
            block += np.outer(left[:, term], right[:, term])
        product += block
    return product


def _block_bounds(terms: int) -> list[int]:
    """Returns where the blocks begin and end: as few as possible, of nearly equal length."""
    most = (L1_BYTES - 256) // 80 // 8 * 8
    rest = terms % most
    size = most - 8 * ((most - 1 - rest) // (8 * (terms // most + 1))) if rest else most
    return [*range(0, terms, size), terms]


def _find_addresses(pattern: bytes) -> Iterator[int]:
    """Yields the addresses of a value in the variables of TensorFlow's library."""
    for begin, end in _writable_ranges():
        memory = ctypes.string_at(begin, end - begin)
        place = memory.find(pattern)
        while place >= 0:
            if place % 8 == 0:
                yield begin + place
            place = memory.find(pattern, place + 1)


def _writable_ranges() -> Iterator[tuple[int, int]]:
    """Yields the ranges of addresses of the library's variables."""
    after = None  # where the last range of the library ends; its zeroed variables follow
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        addresses, rights, _, _, _, *names = line.split(maxsplit=5)
        begin, end = (int(text, 16) for text in addresses.split("-"))
        ours = bool(names) and names[0].endswith(_LIBRARY)
        if rights.startswith("rw") and (ours or (not names and begin == after)):
            yield begin, end
        after = end if ours else None
