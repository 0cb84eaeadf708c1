"""The examples of steps, computed by NumPy, are those of the pipelines; and the inverse."""

import numpy as np
import pytest

from orbit_runner.data.images.readers import make_reader
from orbit_runner.data.order.epochs import ShuffledOrder, exclude_examples
from orbit_runner.data.order.records import RecordOrder
from orbit_runner.data.order.sharding import replica_slices
from orbit_runner.data.order.steps import RowOrder
from orbit_runner.data.text.order import BucketOrder, plan_batches
from orbit_runner.data.tfrecord import reader
from orbit_runner.data.tfrecord.source import load
from tests.support.batches import contexts, some_indices
from tests.support.sentences import token_pairs
from tests.support.tfrecords import write_set

SEED = 11
_RECORDS = np.array([64, 6, 1, 64, 64, 2, 5, 64])


def _global_columns(make, replicas, workers, steps):
    """Yields the examples of each step: those of the first worker before those of the next.

    `make` returns the dataset of an input context, whose elements are the examples of a replica.
    """
    parts = [
        make(context).take(steps * replicas // workers) for context in contexts(replicas, workers)
    ]
    rows = [[*part.as_numpy_iterator()] for part in parts]
    local = replicas // workers
    for step in range(steps):
        pieces = [row for part in rows for row in part[step * local : (step + 1) * local]]
        yield np.concatenate(pieces)


def _assert_equal_steps(order, make, shards, first, steps):
    count = 0
    for step, examples in enumerate(_global_columns(make, *shards, steps), first):
        rows = order.rows(step)
        np.testing.assert_array_equal(rows.examples, examples)
        count += 1
    assert count == steps


@pytest.mark.slow
@pytest.mark.parametrize(
    ("window", "shards", "first", "steps", "count", "chunk", "batch"),
    [
        (100, (2, 2), 7_777, 300, 40, 1024, 12),
        (1, (1, 1), 0, 100, 5, 20, 12),
        (7, (4, 2), 27 * 10**12, 100, 200, 20, 12),
        (1000, (1, 1), 0, 4, 0, 1024, 300),
    ],
)
def test_steps_of_records(window, shards, first, steps, count, chunk, batch, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(reader, "_CHUNK_RECORDS", chunk)
    write_set(tmp_path)
    source = load(data_dir=str(tmp_path), input_path=["train-*"])
    excluded = some_indices(source.size, count)
    full_order = RecordOrder(source.blocks().records, SEED, window)
    order = RowOrder(exclude_examples(full_order, excluded), batch)

    def make(context):
        slices = replica_slices(batch, context)
        columns = make_reader(source).training_columns(slices, SEED, first, window, excluded)
        return columns.map(lambda columns: columns["id"])

    _assert_equal_steps(order, make, shards, first, steps)


def _orders():
    pairs = token_pairs(201, longest=60)
    plan = plan_batches(pairs, batch_tokens=256, rows_multiple=4)
    return {
        "shuffled": RowOrder(ShuffledOrder(211, SEED), 12),
        "batches larger than the set": RowOrder(ShuffledOrder(5, SEED), 12),
        "without some": RowOrder(
            exclude_examples(ShuffledOrder(211, SEED), some_indices(211, 11)), 12
        ),
        "stored order": RowOrder(ShuffledOrder(211, SEED, shuffle=False), 12),
        "windows of records": RowOrder(RecordOrder(_RECORDS, SEED, 50), 7),
        "one window": RowOrder(RecordOrder(_RECORDS, SEED, 10**6), 7),
        "stored records": RowOrder(RecordOrder(_RECORDS, SEED, 1), 7),
        "one block": RowOrder(RecordOrder(_RECORDS[:1], SEED, 9), 7),
        "batches of tokens": BucketOrder(plan, SEED, shuffle=True),
        "tokens in stored order": BucketOrder(plan, SEED, shuffle=False),
    }


@pytest.mark.parametrize("name", _orders())
def test_occurrences_match_a_search_through_all_steps(name):
    order, first, stop = _orders()[name], 3, 53
    every = {step: order.rows(step) for step in range(stop + 20)}
    for example in range(0, min(200, order.size), 3):
        expected = [
            (step, row, rows.epochs[row], rows.places[row])
            for step, rows in every.items()
            for row in np.flatnonzero(rows.examples == example)
            if first <= step < stop
        ]

        occurrences = order.occurrences(example, first, stop)

        columns = occurrences.steps, occurrences.rows, occurrences.epochs, occurrences.places
        assert [*zip(*(column.tolist() for column in columns), strict=True)] == expected


@pytest.mark.parametrize("name", _orders())
def test_each_epoch_has_each_position_once(name):
    order = _orders()[name]
    places = {}
    for step in range(2 * int(np.ceil(order.steps_per_epoch))):
        rows = order.rows(step)
        for epoch, place in zip(rows.epochs.tolist(), rows.places.tolist(), strict=True):
            places.setdefault(epoch, []).append(place)
    assert places[0] == [*range(len(places[0]))]
    assert len(places[0]) >= order.size


@pytest.mark.parametrize("kind", ["examples", "records"])
def test_example_of_ten_million_is_found_without_a_table(kind):
    size, batch = 10_000_000, 256
    records = np.full(size // 50, 50)
    records[::1000] = 17
    sequences = {
        "examples": ShuffledOrder(size, SEED),
        "records": RecordOrder(records, SEED, 10_000),
    }
    order = RowOrder(sequences[kind], batch)

    occurrences = order.occurrences(7_654_321, 0, 10 * order.size // batch)

    assert occurrences.epochs.tolist() == [*range(10)]
    for step, row in [*zip(occurrences.steps, occurrences.rows, strict=True)][::4]:
        assert order.rows(int(step)).examples[row] == 7_654_321
