import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.data.order.records import RecordOrder
from orbit_runner.data.order.tf_arrays import TENSORFLOW

_RECORDS = np.array([64, 6, 1, 64, 64, 64, 2, 5])


def _epoch(number):
    return tf.constant(number, tf.int64)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("records", [_RECORDS, _RECORDS[:1], np.full(500, 64)])
def test_epoch_reads_each_block_once(shuffle, records):
    order = RecordOrder(records, 3, 1 + shuffle, TENSORFLOW)
    for epoch in (0, 1, 10**9):
        blocks, starts = order.blocks(_epoch(epoch))
        np.testing.assert_array_equal(np.sort(blocks), np.arange(len(records)))
        ends = np.cumsum(records[blocks.numpy()])
        np.testing.assert_array_equal(starts, ends - records[blocks.numpy()])
        if not shuffle:
            np.testing.assert_array_equal(blocks, np.arange(len(records)))


@pytest.mark.parametrize(("size", "window"), [(270, 7), (270, 270), (270, 1), (64, 8), (1, 1)])
@pytest.mark.parametrize("epoch", [0, 5])
def test_records_are_shuffled_only_within_their_window(size, window, epoch):
    places = np.arange(size)
    order = RecordOrder(np.array([size]), 3, window, TENSORFLOW)
    moved = order.unshuffled(tf.constant(places), _epoch(epoch)).numpy()
    np.testing.assert_array_equal(np.sort(moved), places)
    np.testing.assert_array_equal(moved // window, places // window)
    assert window == 1 or (moved != places).any()


def _orders(seed, epoch):
    blocks, _ = RecordOrder(np.full(2000, 64), seed, 2000, TENSORFLOW).blocks(_epoch(epoch))
    first, both = (
        RecordOrder(np.array([size]), seed, 2000, TENSORFLOW)
        .unshuffled(tf.range(size, dtype=tf.int64), _epoch(epoch))
        .numpy()
        for size in (2000, 4000)
    )
    return [blocks.numpy(), first, both[2000:] - 2000]


@pytest.mark.parametrize(("seed", "epoch"), [(1, 0), (0, 1)])
def test_orders_differ_by_seed_and_epoch(seed, epoch):
    for one, other in zip(_orders(0, 0), _orders(seed, epoch), strict=True):
        # The correlation of 2,000 independent pairs has a standard deviation of 0.022.
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.1
        assert (one == other).sum() < 10
