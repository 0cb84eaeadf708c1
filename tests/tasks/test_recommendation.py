"""The task: ranks and metrics against numpy, its settings, and runs that stop and resume."""

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.tasks.recommendation import data
from orbit_runner.tasks.recommendation.data import load_source
from orbit_runner.tasks.recommendation.ranking import HitRatio, Ndcg, ranks_and_losses
from orbit_runner.tasks.recommendation.task import RecommendationTask
from tests.support.batches import without_autotuning
from tests.support.configs import in_both_sections
from tests.support.problems import pairs
from tests.support.ratings import ratings_config, write_100k
from tests.support.toy import records, run

RNG = np.random.default_rng(4)


def _task(config=None):
    return RecommendationTask((config or ratings_config()).task)


def _table_score(table):
    return lambda users, items: tf.gather_nd(tf.constant(table), tf.stack([users, items], 1))


def _brute(table, users, items, there):
    ranks, losses = [], []
    for user, row, mask in zip(users, items, there, strict=True):
        score = table[user].astype(np.float64)
        others = [score[item] for item, is_there in zip(row[1:], mask[1:], strict=True) if is_there]
        ranks.append(sum(1 for other in others if not other < score[row[0]]))
        negative = np.mean(np.log1p(np.exp(others))) if others else 0.0
        losses.append((np.log1p(np.exp(-score[row[0]])) + 4 * negative) / 5)
    return ranks, losses


@pytest.mark.alternating
@pytest.mark.parametrize("block_pairs", [1, 7, 40, 2**16])
@pytest.mark.parametrize("levels", [2, 5, None])
def test_ranks_and_losses_match_a_loop_over_users(block_pairs, levels):
    users, width = np.array([3, 0, 2, 2, 5], np.int32), 23
    table = RNG.normal(size=(6, 60)).astype(np.float32)
    if levels:  # Many ties.
        table = RNG.integers(0, levels, table.shape).astype(np.float32)
    items = np.stack([RNG.permutation(60)[:width] for _ in users]).astype(np.int32)
    there = RNG.random(items.shape) < 0.7
    there[3, 1:], there[4] = False, True
    ahead, losses = ranks_and_losses(
        _table_score(table),
        tf.constant(users),
        tf.constant(items),
        tf.constant(there),
        num_negatives=4,
        block_pairs=block_pairs,
    )
    ranks, expected = _brute(table, users, items, there)
    np.testing.assert_array_equal(ahead, ranks)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    assert ranks[3] == 0

    rank = tf.function(
        lambda *batch: ranks_and_losses(
            _table_score(table), *batch, num_negatives=4, block_pairs=block_pairs
        ),
        input_signature=[
            tf.TensorSpec([None], tf.int32),
            tf.TensorSpec([None, width], tf.int32),
            tf.TensorSpec([None, width], tf.bool),
        ],
    )
    traced_ahead, traced_losses = rank(users, items, there)
    np.testing.assert_array_equal(traced_ahead, ranks)
    np.testing.assert_allclose(traced_losses, expected, rtol=1e-5)


@pytest.mark.parametrize("k", [1, 3, 10])
def test_hit_ratio_and_ndcg_match_their_formulas(k):
    ahead = np.array([0, 1, 2, 3, 9, 10, 50, 0], np.float32)
    weight = np.array([1, 1, 1, 1, 1, 1, 1, 0], np.float32)
    gains = {"hr": [], "ndcg": []}  # type: dict[str, list[float]]
    for rank, counts in zip(ahead, weight, strict=True):
        if counts:
            gains["hr"].append(float(rank < k))
            # One right item: the ideal gain is 1 / log2(2) = 1.
            gains["ndcg"].append(1 / np.log2(rank + 2) if rank < k else 0.0)
    for metric, name in ((HitRatio(k), "hr"), (Ndcg(k), "ndcg")):
        assert metric.name == f"{name}_at_{k}"
        for part in (slice(0, 3), slice(3, 8)):
            metric.update_state(tf.constant(ahead[part]), tf.constant(weight[part]))
        np.testing.assert_allclose(metric.result(), np.mean(gains[name]), rtol=1e-6)


def _evaluated(config, model):
    task = _task(config)
    metrics = task.build_metrics(training=False)
    total = count = 0.0
    for batch in without_autotuning(task.build_inputs(config.task.validation_data)):
        logs = task.validation_step(batch, model, metrics)
        total += float(logs["loss"]) * float(logs["examples"])
        count += float(logs["examples"])
    return {m.name: float(m.result()) for m in metrics} | {"loss": total / count, "users": count}


def _random_model(config, coarse=False):
    model, generator = _task(config).build_model(), np.random.default_rng(8)
    for variable in model.variables:
        value = generator.normal(size=variable.shape)
        variable.assign(np.round(value) if coarse else value)
    return model


@pytest.mark.sample(1)
@pytest.mark.alternating
@pytest.mark.parametrize("coarse", [False, True])
@pytest.mark.parametrize("batch", [16, 64])
def test_evaluation_over_all_items_matches_brute_force(coarse, batch):
    config = ratings_config(
        task__validation_data__num_eval_negatives=0, task__validation_data__global_batch_size=batch
    )
    model, source = _random_model(config, coarse), load_source(config.task.train_data)
    hits, gains = [], []
    for user in range(source.num_users):
        items = np.arange(source.num_items, dtype=np.int32)
        logits = model({"user": np.full_like(items, user), "item": items}).numpy()
        mine = source.items[source.users == user]
        others = np.setdiff1d(items, [*mine, source.held_out[user]])
        rank = int((logits[others] >= logits[source.held_out[user]]).sum())
        hits.append(rank < 5)
        gains.append(1 / np.log2(rank + 2) if rank < 5 else 0)
    metrics = _evaluated(config, model)
    np.testing.assert_allclose(metrics["hr_at_5"], np.mean(hits), atol=1e-6)
    np.testing.assert_allclose(metrics["ndcg_at_5"], np.mean(gains), atol=1e-6)
    assert metrics["users"] == source.num_users
    assert 0.01 < metrics["hr_at_5"] < 0.5


def _problems(**changes):
    return dict(pairs(ratings_config(**changes).data.problems()))


def test_train_and_validation_sections_must_read_the_same_dataset(tmp_path):
    assert _problems() == {}
    assert _problems(task__validation_data__synthetic__num_examples=500) == {}
    problems = _problems(task__validation_data__synthetic__num_examples=5000)
    assert "expected those of train_data" in problems["validation_data.source"]
    problems = _problems(task__validation_data__synthetic__num_items=80)
    assert "80 items of synthetic, expected" in problems["validation_data.source"]
    problems = _problems(task__validation_data__num_eval_negatives=100)
    assert "fewer than the 100 items, or 0" in problems["validation_data.num_eval_negatives"]


def test_preflight_reports_file_problems_by_section(tmp_path):
    movielens = in_both_sections(source="movielens", data_dir=str(tmp_path))
    problems = _problems(**movielens)
    assert set(problems) == {"train_data.data_dir", "validation_data.data_dir"}
    path = write_100k(tmp_path)
    assert _problems(**movielens) == {}
    assert (
        "movielens 100k: got "
        in _problems(**movielens, task__train_data__min_interactions=1000)[
            "train_data.min_interactions"
        ]
    )
    with path.open("a") as file:
        file.write("1\t2\n")
    data._load.cache_clear()  # A process reads a dataset only once.
    assert _problems(**movielens)["train_data.data_dir"].startswith(f"{path}:")


@pytest.mark.slow
def test_training_learns_the_planted_user_preferences(tmp_path):
    config = ratings_config(
        trainer__train_steps=900,
        trainer__validation_interval=300,
        trainer__checkpoint_interval=900,
        task__train_data__synthetic__num_examples=6000,
        task__validation_data__synthetic__num_examples=6000,
        task__train_data__global_batch_size=128,
    )
    before = _evaluated(config, _task(config).build_model())["hr_at_5"]
    _, logs = run(config, tmp_path)
    # By chance 5 of 21.
    assert before == pytest.approx(5 / 21, abs=0.12)
    assert logs["hr_at_5"] > 0.5
    values = [record["hr_at_5"] for record in records(tmp_path, "validation")]
    assert len(values) == 3


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf, -np.inf])
def test_model_with_equal_scores_ranks_the_item_last(value):
    table, items = np.full((1, 9), value, np.float32), tf.range(9)[tf.newaxis]
    ahead, _ = ranks_and_losses(
        _table_score(table),
        tf.zeros([1], tf.int32),
        items,
        tf.ones([1, 9], tf.bool),
        num_negatives=4,
    )
    assert ahead.numpy() == 8
