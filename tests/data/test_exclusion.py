"""Examples that are left out: the order of the others, by TensorFlow and by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.data.array_pipeline import train_dataset
from orbit_runner.data.images.files import FileSource
from orbit_runner.data.images.readers import make_reader
from orbit_runner.data.order.epochs import NO_EXAMPLES, EpochOrder, ShuffledOrder, exclude_examples
from orbit_runner.data.order.mixture import make_order
from orbit_runner.data.order.records import RecordOrder
from orbit_runner.data.order.sharding import replica_slices
from orbit_runner.data.order.steps import RowOrder, StepOrder
from orbit_runner.data.order.tf_arrays import TENSORFLOW
from orbit_runner.data.ratings import synthetic
from orbit_runner.data.ratings.interactions import leave_one_out
from orbit_runner.data.text.buckets import plan_batches
from orbit_runner.data.text.order import BucketOrder
from orbit_runner.data.text.pipeline import train_pairs
from orbit_runner.data.tfrecord import bad_record
from orbit_runner.data.tfrecord.bad_record import remember_source
from orbit_runner.data.tfrecord.source import load
from tests.support.batches import global_batches, make_source
from tests.support.choices import train_pairs as rating_pairs
from tests.support.sentences import token_pairs
from tests.support.tfrecords import write_set

SEED = 11
SHARDS = [(1, 1), (4, 2)]  # Replicas and workers.


def some_of(size: int, count: int) -> np.ndarray:
    """Returns some indices below `size`, ascending."""
    return np.sort(np.random.default_rng(size).permutation(size)[:count]).astype(np.int64)


def filtered(order: EpochOrder, excluded: np.ndarray, epochs: int) -> np.ndarray:
    """Returns the examples of some epochs, from which the excluded ones are removed afterwards."""
    places = np.arange(order.size)
    found = [order.examples(places, epoch) for epoch in range(epochs)]
    return np.concatenate([epoch[~np.isin(epoch, excluded)] for epoch in found])


def read_steps(make: Any, shards: tuple[int, int], steps: int) -> np.ndarray:
    """Returns the examples of the first steps, in the order of the global batches."""
    return np.concatenate(global_batches(make, *shards, steps))


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize(
    ("size", "count"), [(2, 1), (7, 6), (7, 3), (97, 1), (97, 50), (1000, 999), (1797, 40)]
)
def test_sampler_of_tensorflow_and_of_numpy(size: int, count: int, shuffle: bool) -> None:
    excluded, whole = some_of(size, count), ShuffledOrder(size, SEED, shuffle)
    left = size - count

    sampler = make_order(size, SEED, shuffle, excluded, xp=TENSORFLOW)
    ids, epochs, _ = sampler(tf.range(3 * left, dtype=tf.int64))

    np.testing.assert_array_equal(ids, filtered(whole, excluded, 3))
    np.testing.assert_array_equal(epochs, np.arange(3 * left) // left)
    order = exclude_examples(whole, excluded)
    for epoch in range(3):
        found = order.examples(np.arange(left), epoch)
        np.testing.assert_array_equal(found, ids[epoch * left : (epoch + 1) * left])


def test_compiled_sampler() -> None:
    sampler = make_order(97, SEED, True, some_of(97, 9), xp=TENSORFLOW)
    positions = tf.range(300, dtype=tf.int64)

    compiled = tf.function(lambda at: sampler(at)[0], jit_compile=True)

    np.testing.assert_array_equal(compiled(positions), sampler(positions)[0])


@pytest.mark.slow
@pytest.mark.parametrize("shards", SHARDS)
@pytest.mark.parametrize(
    ("size", "count", "batch", "shuffle"), [(97, 9, 12, True), (7, 2, 20, True), (50, 3, 8, False)]
)
def test_steps_of_arrays(size: int, count: int, batch: int, shuffle: bool, shards: Any) -> None:
    excluded, whole = some_of(size, count), ShuffledOrder(size, SEED, shuffle)

    def make(context: Any, start: int = 0) -> tf.data.Dataset:
        return train_dataset(
            make_source(size), global_batch_size=batch, seed=SEED, shuffle=shuffle,
            start_step=start, excluded=excluded, input_context=context,
            element=lambda found: found["label"],
        )  # fmt: skip

    steps = -(-2 * size // batch)
    found = read_steps(make, shards, steps)
    expected = filtered(whole, excluded, 2 + 7 * max(batch, size) // (size - count))
    np.testing.assert_array_equal(found, expected[: steps * batch])
    order = RowOrder(exclude_examples(whole, excluded), batch)
    assert_inverse(order, found.reshape(steps, batch), excluded)
    later = read_steps(lambda context: make(context, 5), shards, 2)
    np.testing.assert_array_equal(later, expected[5 * batch : 7 * batch])


def assert_inverse(order: StepOrder, steps: np.ndarray, excluded: np.ndarray) -> None:
    """Checks the rows of an order, and the steps of examples, against what a pipeline returned."""
    for step, examples in enumerate(steps):
        np.testing.assert_array_equal(order.rows(step).examples, examples)
    for example in [*steps[-1][:3], *excluded[:2]]:
        found = order.occurrences(int(example), 0, len(steps))
        expected = np.argwhere(steps == example)
        np.testing.assert_array_equal(np.stack([found.steps, found.rows], axis=1), expected)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("records")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        write_set(folder)
        yield load(data_dir=str(folder), input_path=["train-*"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("window", "shards", "count"),
    [(100, (4, 2), 40), (1, (1, 1), 5), (7, (4, 2), 260), (1000, (1, 1), 1)],
)
def test_steps_of_records(records: Any, window: int, shards: Any, count: int) -> None:
    size, batch = records.size, 12
    excluded, whole = some_of(size, count), RecordOrder(records.blocks.records, SEED, window)

    def make(context: Any, start: int = 0) -> tf.data.Dataset:
        slices = replica_slices(batch, context)
        columns = make_reader(records).training_columns(slices, SEED, start, window, excluded)
        return columns.map(lambda found: found["id"])

    steps = -(-2 * (size - count) // batch)
    found = read_steps(make, shards, steps)
    expected = filtered(whole, excluded, 12)
    np.testing.assert_array_equal(found, expected[: steps * batch])
    assert_inverse(
        RowOrder(exclude_examples(whole, excluded), batch), found.reshape(steps, batch), excluded
    )
    for start in (1, steps - 1, steps):
        later = read_steps(lambda context, first=start: make(context, first), shards, 1)
        np.testing.assert_array_equal(later, expected[start * batch : (start + 1) * batch])


def test_search_for_a_bad_record_skips_those_left_out(records: Any) -> None:
    remember_source(records, np.array([0, 70, 269]))
    remember_source(records, np.array([0, 70]))
    seen: list[tuple[object, object]] = []

    def problem(source: Any, record: bytes) -> str:
        seen.append((source, record))
        return ""

    assert bad_record._find_first_bad(problem) == ""

    assert len([record for source, record in seen if source is records]) == 270 - 2


@pytest.mark.slow
def test_steps_of_image_files() -> None:
    paths = tuple(f"{number}.png" for number in range(45))
    source = FileSource("made", paths, np.zeros(45, np.int32), ("a",), (0, 0, 0))
    excluded = some_of(45, 6)

    def make(context: Any) -> tf.data.Dataset:
        columns = make_reader(source).training_columns(
            replica_slices(8, context), SEED, 0, 100, excluded
        )
        return columns.map(lambda found: found["id"])

    found = read_steps(make, (2, 2), 10)
    expected = filtered(ShuffledOrder(45, SEED), excluded, 3)
    np.testing.assert_array_equal(found, expected[:80])


@pytest.mark.slow
def test_steps_of_ratings_keep_the_negatives_of_other_examples() -> None:
    source = leave_one_out(synthetic.load(num_examples=300, num_items=100), 2)
    size, batch = source.size * 3, 30
    excluded = some_of(size, 25)

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


def test_sentences_in_batches_of_equal_size_move_up() -> None:
    pairs, excluded = token_pairs(53), some_of(53, 7)

    batches = train_pairs(
        pairs, global_batch_size=6, max_length=60, seed=SEED, excluded=excluded
    ).take(15)

    found = np.concatenate([batch["inputs"][:, 0] - 3 for batch in batches.as_numpy_iterator()])
    np.testing.assert_array_equal(
        found, filtered(ShuffledOrder(53, SEED), excluded, 2)[: len(found)]
    )


@pytest.mark.slow
@pytest.mark.parametrize("shuffle", [True, False])
def test_sentences_in_batches_of_tokens_leave_their_rows_empty(shuffle: bool) -> None:
    settings = {"batch_tokens": 256, "rows_multiple": 4}
    pairs = token_pairs(201)
    plan = plan_batches(pairs, **settings)
    whole = BucketOrder(plan, SEED, shuffle=shuffle)
    # All pairs of one batch, and some others.
    batch = whole.rows(3).examples
    excluded = np.unique([*batch[batch >= 0], *some_of(201, 20)])
    order = BucketOrder(plan.exclude(excluded), SEED, shuffle=shuffle)
    batches = train_pairs(
        pairs, **settings, max_length=60, seed=SEED, shuffle=shuffle, excluded=excluded
    )

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


def test_nothing_changes_without_excluded_examples() -> None:
    sampler = make_order(97, SEED, True, NO_EXAMPLES)
    plan = plan_batches(token_pairs(50), batch_tokens=512)

    assert type(sampler).__name__ == "ShuffledOrder"
    assert plan.exclude(NO_EXAMPLES) is plan
    assert not plan.is_partial
