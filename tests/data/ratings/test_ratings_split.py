"""The split: the latest choice of each user is held out, the others are sorted and numbered."""

import numpy as np
import pytest

from orbit_runner.data import synthetic
from orbit_runner.data.ratings.interactions import Interactions, leave_one_out
from tests.support.problems import raises


def _split(rows, min_interactions=2, **more):
    users, items, times = np.array(rows, np.int64).T
    return leave_one_out(Interactions("made", users, items, times, **more), min_interactions)


def _trained(source):
    return list(
        zip(
            source.user_ids[source.users].tolist(),
            source.item_ids[source.items].tolist(),
            strict=True,
        )
    )


def test_leave_one_out_splits_a_small_example_correctly():
    source = _split([(9, 40, 5), (2, 10, 1), (9, 10, 7), (2, 30, 0), (9, 30, 6), (2, 40, 1)])
    np.testing.assert_array_equal(source.user_ids, [2, 9])
    np.testing.assert_array_equal(source.item_ids, [10, 30, 40])
    # User 2 chose items 10 and 40 at the same time; the row of 40 is the later one.
    np.testing.assert_array_equal(source.item_ids[source.held_out], [40, 10])
    assert _trained(source) == [(2, 10), (2, 30), (9, 30), (9, 40)]
    np.testing.assert_array_equal(source.starts, [0, 2, 4])
    assert (source.num_users, source.num_items, source.size) == (2, 3, 4)


@pytest.mark.parametrize("scale", [1, 2**40])
def test_leave_one_out_matches_a_loop_on_random_data(scale):
    generator = np.random.default_rng(5)
    rows = [
        (int(user) * scale, int(item) * scale, int(time))
        for user, item, time in zip(
            generator.integers(0, 30, 800),
            generator.integers(0, 50, 800),
            generator.integers(0, 40, 800),
            strict=True,
        )
    ]
    latest = {}
    for place, (user, item, time) in enumerate(rows):
        latest[user, item] = max(latest.get((user, item), (-1, -1)), (time, place))
    by_user = {}
    for (user, item), when in latest.items():
        by_user.setdefault(user, {})[when] = item
    items_of_users = {user: items for user, items in by_user.items() if len(items) >= 20}
    assert 0 < len(items_of_users) < 30
    source = _split(rows, 20)
    assert source.user_ids.tolist() == sorted(items_of_users)
    assert source.item_ids.tolist() == sorted(
        {i for items in items_of_users.values() for i in items.values()}
    )
    held_out = [items_of_users[user][max(items_of_users[user])] for user in sorted(items_of_users)]
    assert source.item_ids[source.held_out].tolist() == held_out
    expected = sorted(
        (user, item)
        for user, items in items_of_users.items()
        for when, item in items.items()
        if when != max(items)
    )
    assert _trained(source) == expected


def test_users_with_few_choices_are_left_out():
    rows = [(1, item, item) for item in range(3)] + [(2, item, item) for item in range(5)]
    assert _split(rows, 3).user_ids.tolist() == [1, 2]
    assert _split(rows, 4).user_ids.tolist() == [2]
    with raises("empty-data") as c:
        _split(rows, 6)
    assert c.value.field == "min_interactions"


def test_known_items_nobody_chose_are_included():
    source = _split([(1, 5, 0), (1, 7, 1)], known_items=np.arange(4, 9))
    assert source.item_ids.tolist() == [4, 5, 6, 7, 8]
    assert (source.items.tolist(), source.held_out.tolist()) == ([1], [3])


@pytest.mark.parametrize("num_examples", [1, 16, 500, 9000])
def test_small_synthetic_set_is_a_prefix_of_a_larger_one(num_examples):
    small = leave_one_out(synthetic.load_ratings(num_examples=num_examples, num_items=100))
    large = leave_one_out(synthetic.load_ratings(num_examples=12_000, num_items=100))
    assert small.size + small.num_users >= num_examples
    np.testing.assert_array_equal(small.item_ids, large.item_ids)
    np.testing.assert_array_equal(small.user_ids, large.user_ids[: small.num_users])
    np.testing.assert_array_equal(small.held_out, large.held_out[: small.num_users])
    np.testing.assert_array_equal(small.items, large.items[: small.size])


def test_synthetic_choices_depend_only_on_seed_and_user():
    ratings, same, other = (synthetic.load_ratings(seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(ratings.items, same.items)
    assert ratings.items[:20].tolist() != other.items[:20].tolist()
    source = leave_one_out(ratings)
    first, second = (
        source.items[a:b] for a, b in zip(source.starts, source.starts[1:3], strict=False)
    )
    assert set(first) != set(second)
