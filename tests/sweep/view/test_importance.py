"""The share of the differences between trials that a setting explains."""

from __future__ import annotations

import random

import pytest
import scipy.stats

from orbit_runner.sweep.view.importance import average_ranks, importances, share_between
from tests.support.sweep_results import (
    RATE,
    UNITS,
    learning_rate_sweep,
    make_results,
    make_trial,
)


def test_ranks_are_those_of_scipy() -> None:
    values = [0.3, 0.1, 0.3, 0.2, 0.3, 0.1]
    assert average_ranks(values) == list(scipy.stats.rankdata(values))


def test_share_is_the_statistic_of_kruskal_and_wallis() -> None:
    draw = random.Random(1)
    groups = [draw.choice("abc") for _ in range(30)]
    values = [round(draw.random(), 1) for _ in range(30)]
    samples = [
        [value for group, value in zip(groups, values, strict=True) if group == name]
        for name in "abc"
    ]
    statistic = scipy.stats.kruskal(*samples).statistic
    assert share_between(groups, average_ranks(values)) == pytest.approx(statistic / 29, rel=1e-9)


def test_best_value_in_the_middle_is_found_although_it_has_no_direction() -> None:
    rate, units = importances(learning_rate_sweep(40))
    assert (rate.setting.path, units.setting.path) == (RATE, UNITS)
    assert rate.share > 0.5
    assert rate.correlation == pytest.approx(0.0, abs=0.3)
    assert units.share < 0.2
    assert units.correlation is None
    assert (rate.by_chance, units.by_chance) == (3 / 39, 1 / 39)


def test_correlation_is_that_of_spearman() -> None:
    draw = random.Random(2)
    rates = [draw.random() for _ in range(12)]
    values = [rate + draw.random() for rate in rates]
    trials = [make_trial(n, {RATE: rates[n]}, [values[n]]) for n in range(12)]
    (found,) = importances(make_results(trials))
    expected = scipy.stats.spearmanr(rates, values).statistic
    assert found.correlation == pytest.approx(expected, rel=1e-9)


def test_few_or_equal_trials_have_no_importance() -> None:
    assert importances(learning_rate_sweep(7)) == []
    equal = [make_trial(n, {RATE: 0.1 * n}, [0.5]) for n in range(9)]
    assert importances(make_results(equal)) == []
    # A category for each trial would explain everything.
    alone = [make_trial(n, {"a.name": f"name {n}"}, [0.1 * n]) for n in range(9)]
    assert importances(make_results(alone)) == []


def test_only_trials_that_have_a_conditional_setting_count() -> None:
    trials = [
        make_trial(n, {RATE: 10.0**-n, **({"a.b": n} if n % 2 else {})}, [n / 20])
        for n in range(16)
    ]
    found = {one.setting.path: one.trials for one in importances(make_results(trials))}
    assert found == {RATE: 16, "a.b": 8}
