"""Examples that are left out: the order of the others, by TensorFlow and by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.data import synthetic
from orbit_runner.data.order.epochs import EpochOrder, ShuffledOrder, exclude_examples
from orbit_runner.data.order.mixture import make_order
from orbit_runner.data.order.tf_arrays import TENSORFLOW
from orbit_runner.data.ratings.interactions import leave_one_out
from orbit_runner.data.text.order import BucketOrder, plan_batches
from orbit_runner.data.text.pipeline import TrainingPairs
from orbit_runner.data.tfrecord import bad_record
from orbit_runner.data.tfrecord.bad_record import remember_source
from orbit_runner.data.tfrecord.source import load
from tests.support.batches import some_indices
from tests.support.choices import train_pairs as rating_pairs
from tests.support.sentences import token_pairs
from tests.support.tfrecords import write_set

SEED = 11


def filtered(order: EpochOrder, excluded: np.ndarray, epochs: int) -> np.ndarray:
    """Returns the examples of some epochs, from which the excluded ones are removed afterwards."""
    places = np.arange(order.size)
    found = [order.examples(places, epoch) for epoch in range(epochs)]
    return np.concatenate([epoch[~np.isin(epoch, excluded)] for epoch in found])


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize(
    ("size", "count"), [(2, 1), (7, 6), (7, 3), (97, 1), (97, 50), (1000, 999), (1797, 40)]
)
def test_sampler_of_tensorflow_and_of_numpy(size: int, count: int, shuffle: bool) -> None:
    excluded, whole = some_indices(size, count), ShuffledOrder(size, SEED, shuffle)
    left = size - count

    sampler = make_order(size, SEED, shuffle, excluded, xp=TENSORFLOW)
    ids, epochs, _ = sampler(tf.range(3 * left, dtype=tf.int64))

    np.testing.assert_array_equal(ids, filtered(whole, excluded, 3))
    np.testing.assert_array_equal(epochs, np.arange(3 * left) // left)
    order = exclude_examples(whole, excluded)
    for epoch in range(3):
        found = order.examples(np.arange(left), epoch)
        np.testing.assert_array_equal(found, ids[epoch * left : (epoch + 1) * left])


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("records")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        write_set(folder)
        yield load(data_dir=str(folder), input_path=["train-*"])


def test_search_for_a_bad_record_skips_those_left_out(
    records: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember_source(records, np.array([0, 70, 269]))
    remember_source(records, np.array([0, 70]))
    seen: list[tuple[object, object]] = []

    def problem(source: Any, record: bytes) -> str:
        seen.append((source, record))
        return ""

    monkeypatch.setattr(bad_record, "_problem", problem)
    assert bad_record._find_first_bad() == ""

    assert len([record for source, record in seen if source is records]) == 270 - 2


@pytest.mark.slow
def test_steps_of_ratings_keep_the_negatives_of_other_examples() -> None:
    source = leave_one_out(synthetic.load_ratings(num_examples=300, num_items=100), 2)
    size, batch = source.size * 3, 30
    excluded = some_indices(size, 25)

    def rows(steps: int, **settings: Any) -> np.ndarray:
        made = rating_pairs(source, num_negatives=2, global_batch_size=batch, seed=SEED, **settings)
        parts = [[*pair.values(), label] for pair, label in made.take(steps).as_numpy_iterator()]
        return np.concatenate([np.stack(part, axis=1) for part in parts])

    epochs = size * 2
    everything = rows(-(-epochs // batch))[:epochs]
    places, whole = np.arange(size), ShuffledOrder(size, SEED)
    ids = np.concatenate([whole.examples(places, epoch) for epoch in range(2)])
    kept = everything[~np.isin(ids, excluded)]
    steps = len(kept) // batch
    np.testing.assert_array_equal(rows(steps, excluded=excluded), kept[: steps * batch])


@pytest.mark.slow
@pytest.mark.parametrize("shuffle", [True, False])
def test_sentences_in_batches_of_tokens_leave_their_rows_empty(shuffle: bool) -> None:
    settings = {"batch_tokens": 256, "rows_multiple": 4}
    pairs = token_pairs(201)
    plan = plan_batches(pairs, **settings)
    whole = BucketOrder(plan, SEED, shuffle=shuffle)
    # All pairs of one batch, and some others.
    batch = whole.rows(3).examples
    excluded = np.unique([*batch[batch >= 0], *some_indices(201, 20)])
    order = BucketOrder(plan.exclude(excluded), SEED, shuffle=shuffle)
    batches = TrainingPairs(
        source=pairs, **settings, max_length=60, seed=SEED, shuffle=shuffle, excluded=excluded
    ).dataset()

    rows_of = BucketOrder(plan.exclude(excluded), SEED, shuffle=shuffle, xp=TENSORFLOW)

    steps, empty = 2 * plan.steps_per_epoch, 0
    for step, batch in enumerate(batches.take(steps).as_numpy_iterator()):
        examples = whole.rows(step).examples
        examples = np.where(np.isin(examples, excluded), -1, examples)
        np.testing.assert_array_equal(np.maximum(batch["inputs"][:, 0], 2) - 3, examples)
        np.testing.assert_array_equal(rows_of(tf.constant(step, tf.int64))[1], examples >= 0)
        np.testing.assert_array_equal(order.rows(step).examples, examples)
        np.testing.assert_array_equal(order.rows(step).places, whole.rows(step).places)
        tokens = np.count_nonzero(batch["targets"])
        share = len(examples) / tokens if tokens else 0.0
        np.testing.assert_allclose(batch["share"], share, rtol=1e-6)
        empty += not tokens
    assert empty >= 1
    assert order.size == 201 - len(excluded)
    kept = int(np.setdiff1d(np.arange(201), excluded)[5])
    for example, there in ((kept, True), (int(excluded[0]), False)):
        found, before = (one.occurrences(example, 0, steps) for one in (order, whole))
        np.testing.assert_array_equal(found.steps, before.steps if there else [])
