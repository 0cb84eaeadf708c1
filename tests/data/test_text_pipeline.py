import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.data.text.order import plan_batches
from orbit_runner.data.text.pipeline import TrainingPairs, eval_pairs
from tests.support.batches import assert_equal_batches
from tests.support.problems import raises
from tests.support.sentences import token_pairs

_SEED, _SIZE, _LONGEST, _TOKENS = 7, 203, 40, 480
_MODES = {
    "buckets": {"batch_tokens": _TOKENS},
    "rows": {"global_batch_size": 16},
    "static": {"batch_tokens": 960, "static_shapes": True},
}


@functools.cache
def _source():
    return token_pairs(_SIZE, _LONGEST)


def _numbers(batch):
    """Returns which pairs are in a batch, by their first tokens, without the padding rows."""
    numbers = batch["inputs"][:, 0] - 3
    return numbers[numbers >= 0]


def _padded(parts):
    """Joins the rows of replicas, which have equal widths."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _batches(steps, *, replicas=1, pipelines=1, start_step=0, **settings):
    settings = {"seed": _SEED, "max_length": _LONGEST, **settings}
    rows = [
        TrainingPairs(source=_source(), **settings)
        .dataset(
            start_step=start_step,
            input_context=tf.distribute.InputContext(pipelines, p, replicas),
        )
        .as_numpy_iterator()
        for p in range(pipelines)
    ]
    local = replicas // pipelines
    return [_padded([next(row) for row in rows for _ in range(local)]) for _ in range(steps)]


@functools.cache
def _alone(mode):
    """The first batches of one replica."""
    return _batches(max(64, 3 * _steps()), **_MODES[mode])


def _steps():
    return plan_batches(_source(), batch_tokens=_TOKENS).steps_per_epoch


def test_epochs_and_seeds_give_different_batches():
    steps = _steps()
    batches = _alone("buckets")
    first, second = ([frozenset(_numbers(b)) for b in batches[k : k + steps]] for k in (0, steps))
    assert len(set(first) & set(second)) <= 2
    # Nor are batches sorted by length, or in the same order twice.
    rows = [[len(b["inputs"]) for b in batches[k : k + steps]] for k in (0, steps)]
    assert rows[0] != rows[1]
    assert sorted(rows[0]) == sorted(rows[1])
    assert rows[0] != sorted(rows[0], reverse=True)
    other = _batches(steps, batch_tokens=_TOKENS, seed=_SEED + 1)
    assert len({frozenset(_numbers(b)) for b in other} & set(first)) <= 2


def test_batches_keep_the_planned_order_without_shuffling():
    batches = _batches(_steps(), batch_tokens=_TOKENS, shuffle=False)
    numbers = np.concatenate([_numbers(batch) for batch in batches])
    plan = plan_batches(_source(), batch_tokens=_TOKENS)
    np.testing.assert_array_equal(numbers, plan.members)
    second_pass = _batches(_steps(), batch_tokens=_TOKENS, shuffle=False, start_step=_steps())
    assert_equal_batches(second_pass, batches)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("mode", "replicas", "pipelines"), [("buckets", 4, 2), ("rows", 2, 2), ("static", 4, 1)]
)
def test_replicas_split_the_single_replica_batch(mode, replicas, pipelines):
    settings = {**_MODES[mode], "start_step": 3, "replicas": replicas, "pipelines": pipelines}
    assert_equal_batches(_batches(6, **settings), _alone(mode)[3:9])


@pytest.mark.slow
def test_asynchronous_workers_take_whole_batches_in_turn():
    rows = [
        TrainingPairs(source=_source(), seed=_SEED, max_length=_LONGEST, batch_tokens=_TOKENS)
        .dataset(input_context=tf.distribute.InputContext(3, p, 1))
        .as_numpy_iterator()
        for p in range(3)
    ]
    turns = itertools.chain.from_iterable(zip(*rows, strict=True))
    assert_equal_batches(list(itertools.islice(turns, 6)), _alone("buckets")[:6])


@pytest.mark.slow
def test_pipeline_starts_at_a_step_tensor():
    @tf.function
    def inputs(step):
        settings = {"seed": _SEED, "max_length": _LONGEST, "batch_tokens": _TOKENS}
        iterator = iter(TrainingPairs(source=_source(), **settings).dataset(start_step=step))
        return next(iterator)["inputs"]

    for step in (0, 30):
        expected = _alone("buckets")[step]["inputs"]
        np.testing.assert_array_equal(inputs(tf.constant(step, tf.int64)), expected)


def test_static_shapes_pad_batches_to_max_length():
    context = tf.distribute.InputContext(1, 0, 2)
    settings = {"source": _source(), "seed": 1, "max_length": 48, "static_shapes": True}
    for size, rows in (({"batch_tokens": 48 * 17}, 16), ({"global_batch_size": 6}, 6)):
        dataset = TrainingPairs(**settings, **size).dataset(input_context=context)
        shape = [rows // 2, 48]
        assert dataset.element_spec["inputs"] == tf.TensorSpec(shape, tf.int32)
        assert dataset.element_spec["targets"] == tf.TensorSpec(shape, tf.int32)
        batch = next(iter(dataset))
        assert batch["inputs"].shape == shape
        assert (batch["inputs"].numpy()[:, 0] > 2).all()


@pytest.mark.parametrize("mode", _MODES)
def test_share_turns_a_mean_over_rows_into_one_over_tokens(mode):
    for batch in _alone(mode):
        losses = np.sin(batch["targets"].astype(np.float64)) * (batch["targets"] > 0)
        by_rows = (batch["share"] * losses.sum(axis=1)).mean()
        np.testing.assert_allclose(by_rows, losses.sum() / (batch["targets"] > 0).sum(), rtol=1e-6)


@pytest.mark.parametrize(
    ("settings", "replicas", "field", "code"),
    [
        ({"batch_tokens": 480}, 3, "batch_rows_multiple", "not-divisible"),
        ({"global_batch_size": 10}, 4, "global_batch_size", "not-divisible"),
        ({"batch_tokens": 100}, 1, "batch_tokens", "out-of-range"),
        (
            {"global_batch_size": 4, "static_shapes": True, "max_length": 20},
            1,
            "max_length",
            "out-of-range",
        ),
    ],
)
def test_invalid_batch_settings_are_rejected(settings, replicas, field, code):
    with raises(code) as caught:
        _batches(1, replicas=replicas, **settings)
    assert caught.value.field == field


def _evaluate(batch, *, replicas=1, pipelines=1, **settings):
    settings = {"max_length": _LONGEST, **settings}
    rows = [
        eval_pairs(
            _source(),
            global_batch_size=batch,
            input_context=tf.distribute.InputContext(pipelines, p, replicas),
            **settings,
        )
        for p in range(pipelines)
    ]
    local = replicas // pipelines
    pulled = [zip(*[row.as_numpy_iterator()] * local, strict=True) for row in rows]
    return [
        _padded([pair[0] | {"weight": pair[1]} for share in turn for pair in share])
        for turn in zip(*pulled, strict=True)
    ]


@pytest.mark.parametrize(("batch", "static_shapes"), [(16, True), (203, False), (256, False)])
def test_evaluation_counts_each_pair_once(batch, static_shapes):
    source = _source()
    batches = _evaluate(batch, static_shapes=static_shapes)
    assert len(batches) == -(-_SIZE // batch)
    ids = np.concatenate([b["id"][b["weight"] == 1] for b in batches])
    assert sorted(ids) == list(range(_SIZE))
    assert (np.diff(source.lengths[ids]) <= 0).all()
    for b in batches:
        assert len(b["id"]) == batch
        assert not static_shapes or b["inputs"].shape == b["targets"].shape == (batch, _LONGEST)
        assert (b["inputs"][:, 0] - 3 == b["id"]).all()
        assert set(b["weight"]) <= {0.0, 1.0}
    assert batches[-1]["weight"].sum() == (_SIZE % batch or batch)


def test_replicas_split_the_single_replica_evaluation():
    assert_equal_batches(_evaluate(16, replicas=4, pipelines=2), _evaluate(16))


def test_cached_evaluation_can_drop_the_last_partial_batch():
    dataset = eval_pairs(
        _source(), global_batch_size=50, max_length=_LONGEST, drop_remainder=True, cache=True
    )
    assert dataset.cardinality() == 4
    for _ in range(2):
        assert sum(float(tf.reduce_sum(weights)) for _, weights in dataset) == 200
    with raises("out-of-range"):
        eval_pairs(_source(), global_batch_size=204, max_length=_LONGEST, drop_remainder=True)
