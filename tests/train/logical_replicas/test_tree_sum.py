"""The order of additions: one tree, whoever holds the terms."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.train.inputs.distribute import sharded_inputs
from orbit_runner.train.logical_replicas import block_size, block_sum, tree_sum

_TERMS = np.array([1.0, 1e8, -1e8, 3e-8, 7e7, -0.3, 1e-3, 2.5, 1e8, -1e8, 0.1, 0.7], np.float32)


def _pairs(terms):
    """Adds neighbors until one number is left."""
    while len(terms) > 1:
        pairs = [a + b for a, b in zip(terms[::2], terms[1::2], strict=False)]
        terms = pairs + terms[2 * len(pairs) :]
    return terms[0]


@pytest.mark.parametrize("count", range(1, 13))
def test_sum_adds_neighbors_in_a_graph_as_in_numpy(count):
    terms = _TERMS[:count]
    rows = np.stack([terms, terms[::-1]], axis=1)

    sums = tf.function(tree_sum)(tf.constant(rows)).numpy()

    assert sums.tolist() == [_pairs([*terms]), _pairs([*terms[::-1]])]


def test_order_of_the_tree_differs_from_adding_left_to_right():
    left_to_right = [*itertools.accumulate(_TERMS[:4])][-1]

    assert _pairs([*_TERMS[:4]]) != left_to_right


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_block_that_is_computed_term_by_term_has_the_same_sum(count):
    terms, like = tf.constant(_TERMS), [tf.TensorSpec([], tf.float32)]

    @tf.function
    def summed():
        return block_sum(lambda index: [terms[index]], tf.constant(0), count, like)

    assert summed()[0].numpy() == _pairs([*_TERMS[:count]])


def test_sum_of_negative_zeros_is_a_negative_zero():
    like = [tf.TensorSpec([], tf.float32)]

    @tf.function
    def summed():
        return block_sum(lambda _: [tf.constant(-0.0)], tf.constant(0), 4, like)

    assert np.signbit(summed()[0].numpy())


@pytest.mark.parametrize(("count", "size"), [(1, 1), (2, 2), (3, 1), (4, 4), (6, 2), (12, 4)])
def test_block_is_the_largest_subtree_that_each_device_holds(count, size):
    assert block_size(count) == size


def _shards(context):
    """Batches of 0, 1, 2, …, which say what each device gets."""
    size = context.get_per_replica_batch_size(12)
    return tf.data.Dataset.range(48).map(lambda n: (n, -n)).batch(size, drop_remainder=True)


# Each pipeline feeds at least one device.
@pytest.mark.parametrize(("devices", "pipelines"), [(1, 1), (2, 1), (2, 2), (4, 1), (4, 2), (4, 4)])
def test_devices_get_the_rows_of_their_shards(devices, pipelines):
    rows = 12 // devices
    for pipeline in range(pipelines):
        context = tf.distribute.InputContext(pipelines, pipeline, devices)
        batches = [*sharded_inputs(_shards, context, 4).as_numpy_iterator()]

        local = devices // pipelines
        assert len(batches) == 4 * local
        for number, (values, negated) in enumerate(batches):
            step, device = number // local, pipeline * local + number % local
            first = 12 * step + device * rows
            assert values.tolist() == [*range(first, first + rows)]
            assert negated.tolist() == [-value for value in values]
