import itertools

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.data.array_pipeline import eval_dataset, train_dataset
from orbit_runner.data.augment import CropFlip
from orbit_runner.data.order.epochs import ShuffledOrder
from orbit_runner.data.source import ArraySource
from tests.support.batches import (
    assert_equal_batches,
    evaluation_batches,
    global_batches,
    make_source,
)
from tests.support.problems import raises

_SEED = 11


def _train(source, steps, batch, *, replicas=1, pipelines=1, **settings):
    def make(context):
        return train_dataset(
            source, global_batch_size=batch, seed=_SEED, input_context=context, **settings
        )

    return global_batches(make, replicas, pipelines, steps)


@pytest.mark.parametrize(
    ("size", "batch", "steps", "shuffle"),
    [(10, 64, 5, False), (5000, 8, 700, True)],
)
def test_batches_follow_the_sampler_order(size, batch, steps, shuffle):
    source = make_source(size)
    order = ShuffledOrder(size, _SEED, shuffle)
    examples = order(tf.range(steps * batch, dtype=tf.int64))[0].numpy().reshape(steps, batch)
    batches = _train(source, steps, batch, shuffle=shuffle)
    for got, ids in zip(batches, examples, strict=True):
        np.testing.assert_array_equal(got["label"], ids)
        np.testing.assert_array_equal(got["nested"]["twice"], 2 * ids)
        np.testing.assert_array_equal(got["image"], source.arrays["image"][ids])


def test_replicas_split_the_single_replica_batch():
    settings = {"augmentation": CropFlip(2), "start_step": 3}
    alone = _train(make_source(50), 6, 16, **settings)
    shared = _train(make_source(50), 6, 16, replicas=4, pipelines=2, **settings)
    assert_equal_batches(shared, alone)


def test_asynchronous_workers_take_batches_in_turn():
    alone = _train(make_source(50), 6, 16)
    rows = [
        train_dataset(make_source(50), global_batch_size=16, seed=_SEED, input_context=context)
        for context in (tf.distribute.InputContext(3, p, 1) for p in range(3))
    ]
    turns = zip(*(row.as_numpy_iterator() for row in rows), strict=True)
    assert_equal_batches(list(itertools.islice(itertools.chain.from_iterable(turns), 6)), alone)


def test_training_dataset_is_infinite_with_static_shapes():
    context = tf.distribute.InputContext(2, 0, 4)
    dataset = train_dataset(make_source(50), global_batch_size=16, seed=1, input_context=context)
    assert dataset.cardinality() == tf.data.INFINITE_CARDINALITY
    assert dataset.element_spec == {
        "image": tf.TensorSpec([4, 6, 6, 3], tf.uint8),
        "label": tf.TensorSpec([4], tf.int32),
        "nested": {"twice": tf.TensorSpec([4], tf.int64)},
    }


def _graphs(dataset):
    for function in dataset._functions():
        yield function.function.graph
    for below in dataset._inputs():
        yield from _graphs(below)


@pytest.mark.parametrize("make", [train_dataset, eval_dataset])
def test_pipeline_graph_holds_no_state_or_data(make):
    settings = {"seed": 1, "augmentation": CropFlip(2)} if make is train_dataset else {}
    dataset = make(make_source(5000), global_batch_size=16, **settings)
    policy = tf.data.experimental.ExternalStatePolicy.FAIL
    dataset._as_serialized_graph(external_state_policy=policy)
    sizes = [graph.as_graph_def().ByteSize() for graph in _graphs(dataset)]
    assert 2_000 < max(sizes) < 100_000


@pytest.mark.parametrize(
    ("size", "batch", "replicas", "pipelines"),
    [(10, 4, 2, 1), (12, 4, 1, 1), (3, 8, 4, 4), (1, 4, 4, 2), (5001, 24, 4, 1)],
)
def test_evaluation_counts_each_example_once_in_order(size, batch, replicas, pipelines):
    pairs = evaluation_batches(eval_dataset, make_source(size), batch, replicas, pipelines)
    labels = np.concatenate([examples["label"] for examples, _ in pairs])
    weights = np.concatenate([weight for _, weight in pairs])
    assert weights.dtype == np.float32
    assert set(weights) <= {0.0, 1.0}
    np.testing.assert_array_equal(labels[weights == 1], np.arange(size))
    assert not labels[weights == 0].any()
    assert all(len(weight) == batch for _, weight in pairs)


@pytest.mark.parametrize(("size", "batch", "kept"), [(10, 4, 8), (12, 4, 12)])
def test_drop_remainder_omits_the_last_partial_batch(size, batch, kept):
    pairs = evaluation_batches(eval_dataset, make_source(size), batch, 2, 1, drop_remainder=True)
    labels = np.concatenate([examples["label"] for examples, _ in pairs])
    np.testing.assert_array_equal(labels, np.arange(kept))
    assert all((weight == 1).all() for _, weight in pairs)


def test_evaluation_without_a_full_batch_is_rejected():
    with raises("out-of-range") as caught:
        eval_dataset(make_source(10), global_batch_size=16, drop_remainder=True)
    assert caught.value.field == "drop_remainder"


def test_asynchronous_evaluation_workers_cover_each_example_once():
    rows = [
        eval_dataset(make_source(50), global_batch_size=16, input_context=context)
        for context in (tf.distribute.InputContext(3, p, 1) for p in range(3))
    ]
    assert [len(row) for row in rows] == [2, 1, 1]
    pairs = [pair for row in rows for pair in row.as_numpy_iterator()]
    seen = np.concatenate([batch["label"][weight == 1] for batch, weight in pairs])
    np.testing.assert_array_equal(np.sort(seen), np.arange(50))


def test_cached_evaluation_repeats_the_same_batches():
    dataset = eval_dataset(make_source(50), global_batch_size=16, cache=True)
    plain = eval_dataset(make_source(50), global_batch_size=16)
    expected = list(plain.as_numpy_iterator())
    assert_equal_batches(list(dataset.as_numpy_iterator()), expected)
    assert_equal_batches(list(dataset.as_numpy_iterator()), expected)


@pytest.mark.parametrize("make", [train_dataset, eval_dataset])
@pytest.mark.parametrize(("batch", "replicas"), [(6, 4), (0, 1)])
def test_batch_size_not_divisible_by_replicas_is_rejected(make, batch, replicas):
    settings = {"seed": 1} if make is train_dataset else {}
    context = tf.distribute.InputContext(1, 0, replicas)
    with raises("not-divisible") as caught:
        make(make_source(9), global_batch_size=batch, input_context=context, **settings)
    assert caught.value.field == "global_batch_size"


@pytest.mark.parametrize("name", ["image", "words"])
def test_only_images_can_be_augmented(name):
    source = ArraySource("text", {name: np.zeros((4, 9))})
    with raises("bad-data") as caught:
        train_dataset(source, global_batch_size=2, seed=1, augmentation=CropFlip())
    assert caught.value.field == "augment"
