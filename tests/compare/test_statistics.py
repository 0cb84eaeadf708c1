"""Statistics over seeds: equal to SciPy's, and the sentences that they become."""

from __future__ import annotations

import math
import random

import pytest
import scipy.stats

from orbit_runner.compare.statistics import (
    estimate,
    estimate_text,
    paired_test,
    verdict,
)


def _sample(seed: int, count: int, mean: float = 0.9) -> list[float]:
    draw = random.Random(seed)
    return [draw.gauss(mean, 0.02) for _ in range(count)]


@pytest.mark.parametrize("count", [2, 3, 5, 12, 40])
def test_interval_of_the_mean_is_that_of_scipy(count):
    values = _sample(count, count)
    low, high = estimate(values).interval or (math.nan, math.nan)
    expected = scipy.stats.t.interval(
        0.95, count - 1, loc=sum(values) / count, scale=scipy.stats.sem(values)
    )
    assert (low, high) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("count", [2, 3, 5, 12, 40])
def test_paired_test_is_that_of_scipy(count):
    first, second = _sample(count, count), _sample(count + 1, count, 0.91)
    result, expected = paired_test(first, second), scipy.stats.ttest_rel(second, first)
    assert (result.t, result.p) == pytest.approx((expected.statistic, expected.pvalue), rel=1e-9)
    assert result.difference.interval == pytest.approx(
        tuple(expected.confidence_interval(0.95)), rel=1e-9
    )
    assert result.effect_size == pytest.approx(result.t / math.sqrt(count), rel=1e-12)


def test_equal_differences_are_no_chance_and_have_no_effect_size():
    result = paired_test([1.0, 2.0, 3.0], [1.5, 2.5, 3.5])
    assert (result.t, result.p, result.effect_size) == (math.inf, 0.0, None)
    assert result.difference.interval == (0.5, 0.5)
    assert paired_test([1.0, 2.0], [0.5, 1.5]).t == -math.inf


def test_samples_without_any_difference_are_equal():
    result = paired_test([1.0, 2.0], [1.0, 2.0])
    assert (result.t, result.p) == (0.0, 1.0)
    assert verdict(result) == "2 seeds: no difference for any seed"


@pytest.mark.parametrize(
    ("first", "second", "chance"),
    [
        ([1.0, 3.0], [2.0, 2.0], "could be chance"),  # The mean is 0, the deviation is not.
        ([1.0, 2.0], [1.5, 2.5], "more than chance"),  # The deviation is 0, the mean is not.
    ],
)
def test_differences_are_named_if_mean_or_deviation_is_0(first, second, chance):
    text = verdict(paired_test(first, second))

    assert "no difference" not in text
    assert f": {chance} at 5 %" in text


def test_one_pair_cannot_be_tested():
    with pytest.raises(ValueError, match="at least 2"):
        paired_test([1.0], [2.0])
    assert estimate([1.0]).interval is None


def test_verdict_says_whether_a_difference_is_chance():
    before = [0.90, 0.91, 0.92, 0.93, 0.94]
    clear = paired_test(before, [0.911, 0.924, 0.931, 0.941, 0.953])
    assert verdict(clear) == (
        "5 seeds: +0.012 [+0.0102, +0.0138], p < 0.001: more than chance at 5 %"
    )
    unclear = paired_test(before, [0.93, 0.90, 0.93, 0.92, 0.95])
    assert (
        verdict(unclear) == "5 seeds: +0.006 [-0.0148, +0.0268], p = 0.47: could be chance at 5 %"
    )


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.97], "0.97"),
        ([0.97, 0.98, 0.96], "0.970 ± 0.010"),
        ([0.5, 0.5], "0.5 ± 0"),
        ([120.0, 140.0], "130 ± 14"),
        ([1e-12, 3e-12], "2e-12 ± 1.4e-12"),
        ([-0.2, 0.2], "0.00 ± 0.28"),
    ],
)
def test_mean_has_as_many_decimals_as_its_deviation(values, expected):
    assert estimate_text(estimate(values)) == expected
