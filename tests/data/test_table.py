"""Arrays that graphs search."""

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.data.arrays import Gathered
from orbit_runner.data.stored_tensor import SortedTable, Table


@pytest.mark.parametrize("dtype", [np.uint32, np.int64])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 100, 1023, 1024, 1025])
def test_search_counts_as_numpy_does(size, dtype):
    rng = np.random.default_rng(size)
    values = np.sort(rng.integers(0, max(2, size // 2), size)).astype(dtype)
    limits = rng.integers(0, size + 3, 200).astype(dtype)
    expected = np.searchsorted(values, limits, side="right")
    counts = SortedTable(values).count_at_most(tf.constant(limits))
    np.testing.assert_array_equal(counts, expected)


@pytest.mark.parametrize(
    ("gathered", "plain"),
    [
        (Gathered(np.array(["a", "é", ""], object), np.array([2, 0, 0, 1], np.int32)),
         np.array(["", "a", "a", "é"], object)),
        (Gathered(np.array([[0, 1], [2, 3], [4, 5]]), np.array([2, 0, 1])),
         np.array([[4, 5], [0, 1], [2, 3]])),
    ],
)  # fmt: skip
def test_gathered_array_reads_like_the_array_that_it_mimics(gathered, plain):
    assert (gathered.shape, gathered.dtype, gathered.ndim) == (plain.shape, plain.dtype, plain.ndim)
    np.testing.assert_array_equal(gathered, plain)
    np.testing.assert_array_equal(np.stack([gathered[row] for row in range(len(plain))]), plain)
    for index in (np.array([2, 0]), [], slice(1, None), np.arange(len(plain)) > 1, [-1]):
        np.testing.assert_array_equal(gathered[index], plain[index])
    np.testing.assert_array_equal(gathered[-1], plain[-1])
    np.testing.assert_array_equal(np.stack([*gathered]), plain)
    with pytest.raises(IndexError):
        gathered[len(plain)]
    rows = np.array([2, 0])
    ids = tf.constant([*rows, len(plain) - 1], tf.int64)
    for array in (gathered, gathered[np.arange(len(plain))]):
        read = Table(array)(ids, tf.zeros_like(ids)).numpy()
        expected = plain[ids.numpy()]
        texts = [text.encode() for text in expected] if plain.dtype == object else expected
        np.testing.assert_array_equal(read, texts)
