"""Statistics over seeds: equal to SciPy's, and the sentences that they become."""

from __future__ import annotations

import itertools
import math
import random

import pytest
import scipy.stats

from orbit_runner.compare.statistics import (
    difference_text,
    estimate,
    estimate_text,
    interval_text,
    p_text,
    paired_test,
    permutation_p,
    permutation_text,
    verdict,
)


def _sample(seed: int, count: int, mean: float = 0.9) -> list[float]:
    draw = random.Random(seed)
    return [draw.gauss(mean, 0.02) for _ in range(count)]


@pytest.mark.parametrize("count", [2, 3, 5, 12, 40])
def test_interval_of_the_mean_is_that_of_scipy(count: int) -> None:
    values = _sample(count, count)
    low, high = estimate(values).interval or (math.nan, math.nan)
    expected = scipy.stats.t.interval(
        0.95, count - 1, loc=sum(values) / count, scale=scipy.stats.sem(values)
    )
    assert (low, high) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("count", [2, 3, 5, 12, 40])
def test_paired_test_is_that_of_scipy(count: int) -> None:
    first, second = _sample(count, count), _sample(count + 1, count, 0.91)
    found, expected = paired_test(first, second), scipy.stats.ttest_rel(second, first)
    assert (found.t, found.p) == pytest.approx((expected.statistic, expected.pvalue), rel=1e-9)
    assert found.difference.interval == pytest.approx(
        tuple(expected.confidence_interval(0.95)), rel=1e-9
    )
    assert found.effect_size == pytest.approx(found.t / math.sqrt(count), rel=1e-12)


@pytest.mark.parametrize("differences", [_sample(3, 7, 0.01), [0.1, 0.1, -0.1], [1.0, 0.0, 0.5]])
def test_permutation_test_tries_every_sign(differences: list[float]) -> None:
    signs = itertools.product((1, -1), repeat=len(differences))
    sums = [abs(sum(s * d for s, d in zip(one, differences, strict=True))) for one in signs]
    expected = sum(total >= abs(sum(differences)) - 1e-12 for total in sums) / len(sums)
    assert permutation_p(differences) == expected


def test_permutation_test_is_left_out_for_more_than_twelve_pairs() -> None:
    assert paired_test(_sample(1, 12), _sample(2, 12)).permutation_p is not None
    assert paired_test(_sample(1, 13), _sample(2, 13)).permutation_p is None


def test_equal_differences_are_no_chance_and_have_no_effect_size() -> None:
    found = paired_test([1.0, 2.0, 3.0], [1.5, 2.5, 3.5])
    assert (found.t, found.p, found.effect_size) == (math.inf, 0.0, None)
    assert found.difference.interval == (0.5, 0.5)
    assert paired_test([1.0, 2.0], [0.5, 1.5]).t == -math.inf


def test_samples_without_any_difference_are_equal() -> None:
    found = paired_test([1.0, 2.0], [1.0, 2.0])
    assert (found.t, found.p, found.permutation_p) == (0.0, 1.0, 1.0)
    assert verdict(found) == "2 seeds: no difference for any seed"


@pytest.mark.parametrize(
    ("first", "second", "chance"),
    [
        ([1.0, 3.0], [2.0, 2.0], "could be chance"),  # The mean is 0, the deviation is not.
        ([1.0, 2.0], [1.5, 2.5], "more than chance"),  # The deviation is 0, the mean is not.
    ],
)
def test_differences_are_named_if_mean_or_deviation_is_0(
    first: list[float], second: list[float], chance: str
) -> None:
    text = verdict(paired_test(first, second))

    assert "no difference" not in text
    assert f": {chance} at 5 %" in text


def test_one_pair_cannot_be_tested() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        paired_test([1.0], [2.0])
    assert estimate([1.0]).interval is None


def test_verdict_says_whether_a_difference_is_chance() -> None:
    before = [0.90, 0.91, 0.92, 0.93, 0.94]
    clear = paired_test(before, [0.911, 0.924, 0.931, 0.941, 0.953])
    assert verdict(clear) == (
        "5 seeds: +0.012 [+0.0102, +0.0138], p < 0.001: more than chance at 5 %"
    )
    unclear = paired_test(before, [0.93, 0.90, 0.93, 0.92, 0.95])
    assert (
        verdict(unclear) == "5 seeds: +0.006 [-0.0148, +0.0268], p = 0.47: could be chance at 5 %"
    )


def test_text_of_the_permutation_test_says_what_it_cannot_find() -> None:
    before, after = _sample(1, 5), _sample(2, 5, 0.99)
    assert permutation_text(paired_test(before, after)) == (
        "permutation test p = 0.062, and 5 seeds cannot give less than 0.062"
    )
    before, after = [0.0] * 6, [1.0, 1.1, 0.9, 1.2, 1.0, 1.1]
    assert permutation_text(paired_test(before, after)) == "permutation test p = 0.031"
    # One large difference: the permutation test, which knows no distribution, is not convinced.
    before, after = [0.0] * 7, [-0.2, 1.0, 1.1, 0.9, 1.2, 1.0, -0.1]
    assert "does not agree" in permutation_text(paired_test(before, after))


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
def test_mean_has_as_many_decimals_as_its_deviation(values: list[float], expected: str) -> None:
    assert estimate_text(estimate(values)) == expected


def test_interval_has_enough_digits_to_see_its_width() -> None:
    assert interval_text(estimate([0.97, 0.98, 0.96])) == "[0.945, 0.995]"
    assert interval_text(estimate([0.97123, 0.97124, 0.97122])) == "[0.971205, 0.971255]"
    assert interval_text(estimate([0.5, 0.5])) == "[0.5, 0.5]"
    assert interval_text(estimate([0.5])) == ""


def test_texts_of_small_p_and_of_single_differences() -> None:
    assert (p_text(0.0004), p_text(0.012), p_text(1.0)) == ("p < 0.001", "p = 0.012", "p = 1")
    assert difference_text(estimate([-0.25])) == "-0.25"
