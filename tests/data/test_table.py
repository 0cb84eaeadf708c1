"""Arrays that graphs search."""

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.data.stored_tensor import SortedTable


@pytest.mark.parametrize("dtype", [np.uint32, np.int64])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 100, 1023, 1024, 1025])
def test_search_counts_as_numpy_does(size: int, dtype: type) -> None:
    rng = np.random.default_rng(size)
    values = np.sort(rng.integers(0, max(2, size // 2), size)).astype(dtype)
    wanted = rng.integers(0, size + 3, 200).astype(dtype)
    expected = np.searchsorted(values, wanted, side="right")
    counts = SortedTable(values).count_at_most(tf.constant(wanted))
    np.testing.assert_array_equal(counts, expected)
