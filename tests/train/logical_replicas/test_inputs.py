"""Which shards of a dataset each input pipeline gets."""

import pytest
import tensorflow as tf

from orbit_runner.train.inputs.distribute import single_shards


def _shards(pipelines, place, devices, *, ends=True):
    data = tf.data.Dataset.range(10).batch(2) if ends else tf.data.Dataset.range(10).repeat()
    context = tf.distribute.InputContext(pipelines, place, devices)
    return single_shards(lambda _: data.map(lambda x: (x, -x)), context, 4)


@pytest.mark.parametrize(
    ("pipelines", "place", "devices", "firsts"),
    [
        (1, 0, 2, [0, 2, 4, 6, 8]),
        (2, 0, 2, [0, 4, 8]),
        (2, 1, 2, [2, 6]),
        (2, 0, 4, [0, 2, 8]),
        (2, 1, 4, [4, 6]),
    ],
)
def test_pipelines_share_the_shards_of_each_step(pipelines, place, devices, firsts):
    batches = list(_shards(pipelines, place, devices))

    assert [int(batch[0]) for batch, _ in batches] == firsts
    assert all(int(batch[0]) == -int(other[0]) for batch, other in batches)


@pytest.mark.parametrize("pipelines", [1, 2])
def test_endless_dataset_stays_endless(pipelines):
    batches = _shards(pipelines, 0, 2, ends=False)

    assert int(batches.cardinality()) == tf.data.INFINITE_CARDINALITY
