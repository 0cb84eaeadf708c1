"""Arrays that graphs read: where they are stored, and how they are searched."""

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.data.stored_tensor import SortedTable, Table, storage_scope, stored_tensor


def test_tensors_are_stored_on_the_device_of_the_scope() -> None:
    array = np.arange(6, dtype=np.uint8)
    assert stored_tensor(array).device.endswith("CPU:0")
    with storage_scope("CPU:1"):
        assert stored_tensor(array).device.endswith("CPU:1")
    assert stored_tensor(array).device.endswith("CPU:0")


def test_int32_arrays_are_stored_as_int64_outside_of_host_memory() -> None:
    array = np.arange(6, dtype=np.int32) * 2**28
    with storage_scope("CPU:1"):
        table = Table(array)
        assert stored_tensor(array).dtype == tf.int64
    rows = table(tf.constant([5, 0], tf.int64), tf.zeros([2], tf.int64))
    assert rows.dtype == tf.int32
    np.testing.assert_array_equal(rows, array[[5, 0]])


@pytest.mark.parametrize("dtype", [np.uint32, np.int64])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 100, 1023, 1024, 1025])
def test_binary_search_counts_as_numpy_does(size: int, dtype: type) -> None:
    rng = np.random.default_rng(size)
    values = np.sort(rng.integers(0, max(2, size // 2), size)).astype(dtype)
    wanted = rng.integers(0, size + 3, 200).astype(dtype)
    expected = np.searchsorted(values, wanted, side="right")
    with storage_scope("CPU:1"):
        table = SortedTable(values)
    for search in (table.count_at_most, SortedTable(values).count_at_most):
        np.testing.assert_array_equal(search(tf.constant(wanted)), expected)


def test_compiled_search_does_not_compare_all_values() -> None:
    """XLA would need a matrix of 10^6 × 10^6 for `tf.searchsorted`."""
    values = np.arange(10**6, dtype=np.int64)
    with storage_scope("CPU:1"):
        table = SortedTable(values)
    with tf.device("CPU:1"):
        count = tf.function(table.count_at_most, jit_compile=True)(tf.constant(values))
    np.testing.assert_array_equal(count, values + 1)
