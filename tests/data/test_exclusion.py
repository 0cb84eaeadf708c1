"""Examples that are left out: the order of the others, by TensorFlow and by NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.data.order.epochs import ShuffledOrder, exclude_examples
from orbit_runner.data.order.mixture import make_order
from orbit_runner.data.order.tf_arrays import TENSORFLOW
from orbit_runner.data.tfrecord import bad_record
from orbit_runner.data.tfrecord.bad_record import remember_source
from orbit_runner.data.tfrecord.source import load
from tests.support.batches import some_indices
from tests.support.tfrecords import write_set

SEED = 11


def filtered(order, excluded, epochs):
    """Returns the examples of some epochs, from which the excluded ones are removed afterwards."""
    places = np.arange(order.size)
    epochs_of_ids = [order.examples(places, epoch) for epoch in range(epochs)]
    return np.concatenate([epoch[~np.isin(epoch, excluded)] for epoch in epochs_of_ids])


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize(
    ("size", "count"), [(2, 1), (7, 6), (7, 3), (97, 1), (97, 50), (1000, 999), (1797, 40)]
)
def test_sampler_of_tensorflow_and_of_numpy(size, count, shuffle):
    excluded, full_order = some_indices(size, count), ShuffledOrder(size, SEED, shuffle)
    left = size - count

    sampler = make_order(size, SEED, shuffle, excluded, xp=TENSORFLOW)
    ids, epochs, _ = sampler(tf.range(3 * left, dtype=tf.int64))

    np.testing.assert_array_equal(ids, filtered(full_order, excluded, 3))
    np.testing.assert_array_equal(epochs, np.arange(3 * left) // left)
    order = exclude_examples(full_order, excluded)
    for epoch in range(3):
        examples = order.examples(np.arange(left), epoch)
        np.testing.assert_array_equal(examples, ids[epoch * left : (epoch + 1) * left])


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        write_set(folder)
        yield load(data_dir=str(folder), input_path=["train-*"])


def test_search_for_a_bad_record_skips_those_left_out(records, monkeypatch):
    remember_source(records, np.array([0, 70, 269]))
    remember_source(records, np.array([0, 70]))
    seen = []

    def problem(source, record):
        seen.append((source, record))
        return ""

    monkeypatch.setattr(bad_record, "_problem", problem)
    assert bad_record._find_first_bad() == ""

    assert len([record for source, record in seen if source is records]) == 270 - 2
