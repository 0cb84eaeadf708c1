"""Mixtures: the share of each group, the order of its examples, and where each of them is."""

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.data.order.mixture import MixtureOrder, make_mixture
from orbit_runner.data.order.steps import RowOrder
from orbit_runner.data.order.tf_arrays import TENSORFLOW
from orbit_runner.errors import DataError

SEED = 11
NAMES = ("a", "b", "c", "d")
# The sizes of the groups, and their weights.
_CASES = {
    "decimals": ((50, 40), (0.7, 0.3)),
    "thirds": ((7, 1, 30), (1.0, 1.0, 1.0)),
    "one hundredth": ((20, 3), (0.99, 0.01)),
    "no common denominator": ((9, 11, 13), (0.123457, 0.654321, 0.9876543)),
    "weight 0": ((5, 6, 7, 8), (0.0, 2.0, 0.0, 1.0)),
    "single": ((5, 6), (0.0, 1.0)),
}


def _mixture(case, excluded=()):
    """Returns the mixture, and the group of each example; the groups are not sorted."""
    sizes, weights = _CASES[case]
    groups = np.random.default_rng(1).permutation(np.repeat(np.arange(len(sizes)), sizes))
    return make_mixture(groups, weights, NAMES, np.array(excluded, np.int64)), groups


def _read(mixture, count, *, shuffle=True):
    rows = MixtureOrder(mixture, SEED, shuffle, TENSORFLOW)(tf.range(count, dtype=tf.int64))
    return rows[0].numpy(), rows[1].numpy()


@pytest.mark.parametrize("case", _CASES)
def test_each_group_has_its_share_to_within_one_at_the_end_of_each_block(case):
    mixture, groups = _mixture(case)
    weights = np.array(_CASES[case][1])
    blocks = max(3, 1000 // mixture.block)
    ids, _ = _read(mixture, blocks * mixture.block)
    for number, weight in enumerate(weights):
        counts = np.cumsum(groups[ids] == number)[mixture.block - 1 :: mixture.block]
        ends = np.arange(1, blocks + 1) * mixture.block
        assert np.abs(counts - ends * weight / weights.sum()).max() < 1.001


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("case", _CASES)
def test_group_gives_each_example_once_in_each_pass(case, shuffle):
    mixture, groups = _mixture(case)
    ids, passes = _read(mixture, 2000, shuffle=shuffle)
    for number, size in enumerate(_CASES[case][0]):
        of = groups[ids] == number
        if not of.any():
            assert _CASES[case][1][number] == 0
        for pass_number in range(int(passes[of].max(initial=0))):
            # The last block may have begun the next pass, and not ended this one.
            examples = np.sort(ids[of & (passes == pass_number)])
            if pass_number < int(passes[of].max()) - 1:
                np.testing.assert_array_equal(examples, np.flatnonzero(groups == number))
            assert len(set(examples.tolist())) == len(examples) <= size


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("case", _CASES)
def test_order_by_numpy_is_that_of_the_sampler_and_knows_where_examples_are(case, shuffle):
    mixture, _ = _mixture(case, excluded=(2, 3))
    order = RowOrder(MixtureOrder(mixture, SEED, shuffle), 6)
    steps = 1000
    ids, passes = _read(mixture, 6 * steps, shuffle=shuffle)

    rows = [order.rows(step) for step in range(steps)]

    np.testing.assert_array_equal(np.concatenate([step_rows.examples for step_rows in rows]), ids)
    np.testing.assert_array_equal(np.concatenate([step_rows.epochs for step_rows in rows]), passes)
    places = np.concatenate([step_rows.places for step_rows in rows])
    for example in range(sum(_CASES[case][0])):
        occurrences = order.occurrences(example, 17, 600)
        expected = np.flatnonzero(ids[6 * 17 : 6 * 600] == example) + 6 * 17
        np.testing.assert_array_equal(occurrences.steps * 6 + occurrences.rows, expected)
        np.testing.assert_array_equal(occurrences.epochs, passes[expected])
        np.testing.assert_array_equal(occurrences.places, places[expected])
        assert len(expected) or example in (2, 3) or case in ("weight 0", "single")


def test_late_positions_are_exact():
    mixture, groups = _mixture("no common denominator")
    order, late = RowOrder(MixtureOrder(mixture, SEED, True), 100), 4_000_000_000
    rows = order.rows(late)
    positions = tf.range(100 * late, 100 * late + 100, dtype=tf.int64)
    ids = MixtureOrder(mixture, SEED, xp=TENSORFLOW)(positions).examples
    np.testing.assert_array_equal(rows.examples, ids)
    occurrences = order.occurrences(int(ids[7]), late, late + 1)
    assert 7 in occurrences.rows
    assert {*groups[ids]} == {0, 1, 2}


@pytest.mark.slow
def test_compiled_sampler():
    sampler = MixtureOrder(_mixture("decimals")[0], SEED, xp=TENSORFLOW)
    positions = tf.range(300, dtype=tf.int64)
    compiled = tf.function(lambda at: sampler(at)[0], jit_compile=True)
    np.testing.assert_array_equal(compiled(positions), sampler(positions)[0])


@pytest.mark.parametrize(
    ("weights", "excluded", "expected"),
    [
        ((1.0, 1.0, 1.0), (), "c: has a weight, but no training examples"),
        ((1.0, 1.0), (0, 1), "a: has a weight, but no training examples"),
        ((1.0, 1e-9), (), "b: got the weight 1e-09, expected at least a 16,777,216th of all"),
    ],
)
def test_group_that_cannot_have_its_share_is_an_error(weights, excluded, expected):
    groups = np.array([0, 0, 1])
    with pytest.raises(DataError) as caught:
        make_mixture(groups, weights, NAMES, np.array(excluded, np.int64))
    assert str(caught.value).startswith(expected)
