"""Serving of the task: published ids in and out, unknown users and items."""

import json

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.tasks.recommendation.data import load_source
from orbit_runner.tasks.recommendation.task import RecommendationTask
from tests.support.configs import in_both_sections
from tests.support.evaluations import random_model
from tests.support.problems import raises
from tests.support.ratings import ratings_config, write_100k


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A model of random weights on a set whose ids are multiples of ten."""
    folder = tmp_path_factory.mktemp("set")
    write_100k(folder)
    config = ratings_config(**in_both_sections(source="movielens", data_dir=str(folder)))
    task = RecommendationTask(config.task)
    model = random_model(task)
    return task, model, task.serving(model), load_source(config.task.train_data)


def _scores(model, source, user):
    items = np.arange(source.num_items, dtype=np.int32)
    logits = model({"user": np.full_like(items, user), "item": items}).numpy()
    return 1 / (1 + np.exp(-logits.astype(np.float64)))


def test_pairs_signature_scores_known_pairs_and_flags_unknown_ones(served):
    _, model, serving, source = served
    users, items = source.user_ids[[0, 7, 7]], source.item_ids[[3, 1, 90]]
    user = tf.constant([*users, 15, users[0], 10**12, -1], tf.int64)
    item = tf.constant([*items, items[0], 999_999, 10**15, -5], tf.int64)
    outputs = serving.signatures["pairs"](user=user, item=item)
    assert outputs["known"].numpy().tolist() == [True] * 3 + [False] * 4
    expected = [_scores(model, source, row)[column] for row, column in ((0, 3), (7, 1), (7, 90))]
    np.testing.assert_allclose(outputs["score"][:3], expected, rtol=1e-5)
    assert np.isnan(outputs["score"][3:]).all()


@pytest.mark.parametrize("k", [1, 250])
def test_top_k_excludes_items_already_chosen(served, k):
    _, model, serving, source = served
    numbers = [4, 0, 11]
    ids = [*source.user_ids[numbers], 15]
    outputs = serving.signatures["top_k"](
        user=tf.constant(ids, tf.int64), k=tf.constant(k, tf.int32)
    )
    assert outputs["item"].shape == outputs["score"].shape == (4, k)
    assert outputs["known"].numpy().tolist() == [True, True, True, False]
    for row, user in enumerate(numbers):
        scores = _scores(model, source, user)
        free = np.setdiff1d(np.arange(source.num_items), source.items[source.users == user])
        assert source.held_out[user] in free
        best = free[np.argsort(-scores[free], kind="stable")][:k]
        there = len(best)
        np.testing.assert_array_equal(outputs["item"][row, :there], source.item_ids[best])
        np.testing.assert_allclose(outputs["score"][row, :there], scores[best], rtol=1e-5)
        assert (outputs["item"][row, there:].numpy() == -1).all()
        assert np.isnan(outputs["score"][row, there:]).all()
    assert (outputs["item"][3].numpy() == -1).all()
    assert np.isnan(outputs["score"][3]).all()


@pytest.mark.parametrize("top_k", [None, 3])
def test_predictions_list_the_best_items_or_an_error_for_each_user(served, top_k):
    task, model, serving, source = served
    predictor = task.predictor(serving.signatures, top_k=top_k)
    first, second = source.user_ids[[2, 5]].tolist()
    items = predictor.items([str(first), "15", "-", str(second), str(2**70)], ["abc"])
    answers = predictor.predict(list(items))
    errors = [answer.data.get("error") for answer in answers]
    assert errors[0] is errors[3] is None
    assert errors[1] == answers[1].text == "user 15 is not in the training set"
    assert errors[2] == "got 'abc', expected a user id, an integer of 64 bits"
    assert "expected a user id" in str(errors[4])
    for answer, number in ((answers[0], 2), (answers[3], 5)):
        scores = _scores(model, source, number)
        free = np.setdiff1d(np.arange(source.num_items), source.items[source.users == number])
        best = free[np.argsort(-scores[free], kind="stable")][: top_k or 5]
        assert answer.data["user"] == source.user_ids[number]
        listed = [each["item"] for each in answer.data["items"]]
        assert listed == source.item_ids[best].tolist()
        assert answer.text.startswith(f"{answer.data['user']}: {listed[0]} (")
        json.dumps(answer.data)
    assert predictor.predict([]) == []
    assert [line.text for line in predictor.items([], [" 8\n", "\n", "9"])] == ["8", "9"]
    for bad in ("nobody", "."):
        with raises("bad-item"):
            list(predictor.items([bad], []))


def test_top_k_accepts_an_empty_batch_of_users(served):
    outputs = served[2].signatures["top_k"](
        user=tf.zeros([0], tf.int64), k=tf.constant(3, tf.int32)
    )
    assert outputs["item"].shape == (0, 3)
